// The DNS server of a test cluster: CoreDNS with the few plugins that answer for a cluster's services.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/bind"
)

func main() {
	dnsserver.Directives = []string{"bind", "errors", "log", "cache", "kubernetes"}
	coremain.Run()
}
