// What the tests run in pods: clients of the API server as client-go makes them, and both ends of connections that are
// counted. Each client writes what it saw to a file as it sees it, a line or an object of JSON at a time.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
)

type command func(ctx context.Context, words []string) error

var commands = map[string]struct {
	usage string
	count int
	run   command
}{
	"echo":   {"ADDRESS", 1, echo},
	"hold":   {"ADDRESS FILE", 2, hold},
	"serve":  {"ADDRESS SECONDS", 2, serve},
	"load":   {"URL HOST CLIENTS FILE", 4, load},
	"lookup": {"NAME FILE", 2, lookup},
	"watch":  {"NAMESPACE NAME FILE", 3, watch},
	"lead":   {"NAMESPACE LEASE IDENTITY FILE", 4, lead},
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if len(os.Args) < 2 {
		fail("name a command")
	}
	found, known := commands[os.Args[1]]
	if !known || len(os.Args) != 2+found.count {
		fail(fmt.Sprintf("%s %s", os.Args[1], found.usage))
	}
	if err := found.run(ctx, os.Args[2:]); err != nil {
		fail(err.Error())
	}
}

func fail(text string) {
	fmt.Fprintln(os.Stderr, text)
	os.Exit(1)
}

// write replaces a file at once, so that a reader sees a whole object.
func write(file string, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	fresh := filepath.Join(filepath.Dir(file), "."+filepath.Base(file))
	if err := os.WriteFile(fresh, text, 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, file)
}

// add appends a line to a file.
func add(file, line string) error {
	out, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	_, err = fmt.Fprintln(out, line)
	return err
}
