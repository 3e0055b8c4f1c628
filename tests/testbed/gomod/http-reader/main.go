// Reads requests as the API server does, with net/http: for each message on standard input (its length in four bytes,
// big-endian, then its bytes) one line of JSON that says what it means, or why it is refused.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"io"
	"net/http"
	"os"
)

type meaning struct {
	Error   string      `json:"error"`
	Method  string      `json:"method"`
	Target  string      `json:"target"`
	Length  int64       `json:"length"`
	Headers http.Header `json:"headers"`
	Body    []byte      `json:"body"`
	Rest    []byte      `json:"rest"`
}

func read(data []byte) meaning {
	reader := bufio.NewReader(bytes.NewReader(data))
	request, err := http.ReadRequest(reader)
	if err != nil {
		return meaning{Error: err.Error()}
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return meaning{Error: err.Error()}
	}
	if len(request.Trailer) > 0 {
		return meaning{Error: "trailers"}
	}
	rest, _ := io.ReadAll(reader)
	return meaning{"", request.Method, request.RequestURI, request.ContentLength, request.Header, body, rest}
}

func main() {
	in, out := bufio.NewReader(os.Stdin), json.NewEncoder(os.Stdout)
	for {
		var length uint32
		if binary.Read(in, binary.BigEndian, &length) != nil {
			return
		}
		data := make([]byte, length)
		if _, err := io.ReadFull(in, data); err != nil {
			return
		}
		if out.Encode(read(data)) != nil {
			return
		}
	}
}
