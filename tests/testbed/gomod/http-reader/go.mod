module http-reader

go 1.24
