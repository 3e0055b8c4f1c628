package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"
)

// echo sends back every line, on any number of connections.
func echo(ctx context.Context, words []string) error {
	listener, err := net.Listen("tcp", words[0])
	if err != nil {
		return err
	}
	go func() {
		<-ctx.Done()
		listener.Close()
	}()
	for {
		connection, err := listener.Accept()
		if err != nil {
			return nil
		}
		go func() {
			defer connection.Close()
			io.Copy(connection, connection)
		}()
	}
}

type held struct {
	Echoed  int     `json:"echoed"`
	Longest float64 `json:"longest"`
	Broken  string  `json:"broken"`
}

// hold keeps one connection for as long as it holds, asks on it five times a second, and says when it broke. The longest
// time between two answers is kept as well.
func hold(ctx context.Context, words []string) error {
	connection, err := net.DialTimeout("tcp", words[0], 10*time.Second)
	if err != nil {
		return err
	}
	defer connection.Close()
	var seen held
	last := time.Now()
	lines := bufio.NewReader(connection)
	for number := 1; ctx.Err() == nil; number++ {
		wanted := fmt.Sprintln(number)
		if _, err := io.WriteString(connection, wanted); err != nil {
			seen.Broken = err.Error()
		} else if line, err := lines.ReadString('\n'); err != nil {
			seen.Broken = err.Error()
		} else if line != wanted {
			seen.Broken = fmt.Sprintf("%q came instead of %q", line, wanted)
		} else {
			seen.Echoed = number
		}
		seen.Longest = max(seen.Longest, time.Since(last).Seconds())
		last = time.Now()
		if err := write(words[1], seen); err != nil {
			return err
		}
		if seen.Broken != "" {
			// The container stays, so that its file can be read.
			<-ctx.Done()
			return nil
		}
		time.Sleep(200 * time.Millisecond)
	}
	return nil
}

// serve answers HTTP with the name of the host, and goes on for some seconds after it was asked to end: until then
// others may not have learned that it is about to.
func serve(ctx context.Context, words []string) error {
	seconds, err := strconv.Atoi(words[1])
	if err != nil {
		return err
	}
	name, _ := os.Hostname()
	answer := func(out http.ResponseWriter, _ *http.Request) { fmt.Fprintln(out, "hello from", name) }
	server := &http.Server{Addr: words[0], Handler: http.HandlerFunc(answer)}
	go func() {
		<-ctx.Done()
		time.Sleep(time.Duration(seconds) * time.Second)
		patience, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		server.Shutdown(patience)
	}()
	err = server.ListenAndServe()
	if errors.Is(err, http.ErrServerClosed) {
		// Shutdown goes on while the last requests are answered.
		time.Sleep(time.Second)
		return nil
	}
	return err
}

type loaded struct {
	Answered int            `json:"answered"`
	Failed   int            `json:"failed"`
	First    string         `json:"first"`
	By       map[string]int `json:"by"`
}

// load asks a URL with some clients at once, half of them with a new connection for each request; the others find out that
// a server has closed one by asking, and ask on another, as HTTP has it. HOST is the name in the request, "-" for that of
// the URL.
func load(ctx context.Context, words []string) error {
	clients, err := strconv.Atoi(words[2])
	if err != nil {
		return err
	}
	seen := loaded{By: map[string]int{}}
	var lock sync.Mutex
	for number := range clients {
		transport := &http.Transport{DisableKeepAlives: number%2 == 0, MaxIdleConnsPerHost: 1}
		client := &http.Client{Transport: transport, Timeout: 15 * time.Second}
		go func() {
			for ctx.Err() == nil {
				text, err := ask(client, words[0], words[1])
				lock.Lock()
				if err != nil {
					seen.Failed++
					if seen.First == "" {
						seen.First = err.Error()
					}
				} else {
					seen.Answered++
					seen.By[text]++
				}
				lock.Unlock()
				time.Sleep(50 * time.Millisecond)
			}
		}()
	}
	for ctx.Err() == nil {
		lock.Lock()
		err := write(words[3], seen)
		lock.Unlock()
		if err != nil {
			return err
		}
		time.Sleep(250 * time.Millisecond)
	}
	return nil
}

func ask(client *http.Client, url, host string) (string, error) {
	request, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	if host != "-" {
		request.Host = host
	}
	answer, err := client.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return "", err
	}
	if answer.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %.200s", answer.Status, text)
	}
	return string(text), nil
}

// lookup asks for a name once a second, of the servers that resolv.conf names, one after the other; what was not found in
// fifteen seconds has failed.
func lookup(ctx context.Context, words []string) error {
	resolver := &net.Resolver{PreferGo: true}
	seen := loaded{By: map[string]int{}}
	for ctx.Err() == nil {
		patience, cancel := context.WithTimeout(ctx, 15*time.Second)
		addresses, err := resolver.LookupHost(patience, words[0])
		cancel()
		if err == nil {
			seen.Answered++
			for _, address := range addresses {
				seen.By[address]++
			}
		} else if ctx.Err() == nil {
			seen.Failed++
			if seen.First == "" {
				seen.First = err.Error()
			}
		}
		if err := write(words[1], seen); err != nil {
			return err
		}
		time.Sleep(time.Second)
	}
	return nil
}
