module liqod/http1reader

go 1.24
