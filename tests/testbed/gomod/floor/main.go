// Floor is the least that can run a pod of one cluster in another one: for each pod bound to its node, a token bound to
// that pod, a Secret and a ShadowPod at the lender, the pod itself there, and one status at home when that is Ready.
// It decides, checks and retries nothing. What it costs is what two pods, a token and a status cost in two clusters.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"sync"
	"time"
)

type object = map[string]any

// cluster is an API server, asked with the certificate of a kubeconfig that the testbed wrote (JSON, keys inside).
type cluster struct {
	url  string
	http *http.Client
	slot chan struct{}
}

func connect(kubeconfig string, parallel int) *cluster {
	var config struct {
		Clusters []struct {
			Cluster struct {
				Server string
				CA     []byte `json:"certificate-authority-data"`
			}
		}
		Users []struct {
			User struct {
				Certificate []byte `json:"client-certificate-data"`
				Key         []byte `json:"client-key-data"`
			}
		}
	}
	text, err := os.ReadFile(kubeconfig)
	must(err)
	must(json.Unmarshal(text, &config))
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.Clusters[0].Cluster.CA)
	pair, err := tls.X509KeyPair(config.Users[0].User.Certificate, config.Users[0].User.Key)
	must(err)
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}},
		ForceAttemptHTTP2: true,
	}
	return &cluster{config.Clusters[0].Cluster.Server, &http.Client{Transport: transport}, make(chan struct{}, parallel)}
}

// ask sends one request; kind is the content type of the body. The answer is decoded into what into points to.
func (c *cluster) ask(verb, path, kind string, body, into any) {
	c.slot <- struct{}{}
	defer func() { <-c.slot }()
	var sent io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		must(err)
		sent = bytes.NewReader(text)
	}
	request, err := http.NewRequest(verb, c.url+path, sent)
	must(err)
	request.Header.Set("Content-Type", kind)
	answer, err := c.http.Do(request)
	must(err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(err)
	// A pod that its owner's deletion took away already is no failure of the measurement.
	if answer.StatusCode >= 400 && answer.StatusCode != http.StatusNotFound && answer.StatusCode != http.StatusConflict {
		log.Fatalf("%s %s: %s: %s", verb, path, answer.Status, text)
	}
	if into != nil {
		must(json.Unmarshal(text, into))
	}
}

func (c *cluster) create(path string, body, into any) {
	c.ask("POST", path, "application/json", body, into)
}
func (c *cluster) patch(path string, body any) {
	c.ask("PATCH", path, "application/merge-patch+json", body, nil)
}
func (c *cluster) remove(path string, options any) {
	c.ask("DELETE", path, "application/json", options, nil)
}

type pod struct {
	Metadata struct {
		Name              string  `json:"name"`
		UID               string  `json:"uid"`
		ResourceVersion   string  `json:"resourceVersion"`
		DeletionTimestamp *string `json:"deletionTimestamp"`
		Labels            any     `json:"labels"`
	} `json:"metadata"`
	Spec   object `json:"spec"`
	Status struct {
		Conditions []struct{ Type, Status string }
	} `json:"status"`
	raw json.RawMessage
}

// watch calls seen for every pod that a selection has, and for every change of one.
func (c *cluster) watch(path, selection string, seen func(kind string, one *pod)) {
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}
	c.ask("GET", path+"?limit=1&"+selection, "application/json", nil, &list)
	from := list.Metadata.ResourceVersion
	for {
		answer, err := c.http.Get(c.url + path + "?watch=1&resourceVersion=" + from + "&" + selection)
		must(err)
		// Asked again at once it would be refused as often as it can be asked.
		if answer.StatusCode != http.StatusOK {
			text, _ := io.ReadAll(answer.Body)
			log.Fatalf("watch of %s: %s: %s", path, answer.Status, text)
		}
		lines := json.NewDecoder(answer.Body)
		for {
			var event struct {
				Type   string
				Object json.RawMessage
			}
			if lines.Decode(&event) != nil {
				break
			}
			one := &pod{}
			must(json.Unmarshal(event.Object, one))
			if event.Type == "ERROR" {
				log.Fatalf("watch of %s: %s", path, event.Object)
			}
			from = one.Metadata.ResourceVersion
			if one.Metadata.DeletionTimestamp == nil {
				one.raw = event.Object
			}
			seen(event.Type, one)
		}
		answer.Body.Close()
	}
}

type floor struct {
	home, lender    *cluster
	node, namespace string
	lock            sync.Mutex
	known, leaving  map[string]string // names at home to UIDs
	shown           map[string]bool
}

func (f *floor) pods() string { return "/api/v1/namespaces/" + f.namespace + "/pods" }
func (f *floor) shadows() string {
	return "/apis/offloading.liqo.io/v1beta1/namespaces/" + f.namespace + "/shadowpods"
}
func (f *floor) secrets() string { return "/api/v1/namespaces/" + f.namespace + "/secrets" }

func (f *floor) homePod(kind string, one *pod) {
	meta := one.Metadata
	f.lock.Lock()
	defer f.lock.Unlock()
	if kind == "DELETED" {
		delete(f.known, meta.Name)
		delete(f.leaving, meta.Name)
		delete(f.shown, meta.Name)
	} else if meta.DeletionTimestamp != nil && f.leaving[meta.Name] == "" {
		f.leaving[meta.Name] = meta.UID
		go func() {
			f.lender.remove(f.shadows()+"/"+meta.Name, nil)
			f.lender.remove(f.secrets()+"/"+meta.Name, nil)
		}()
	} else if f.known[meta.Name] == "" {
		f.known[meta.Name] = meta.UID
		go f.offload(one)
	}
}

func (f *floor) offload(one *pod) {
	name := one.Metadata.Name
	reference := object{"apiVersion": "v1", "kind": "Pod", "name": name, "uid": one.Metadata.UID}
	var token struct{ Status struct{ Token string } }
	asked := object{"spec": object{"expirationSeconds": 3607, "boundObjectRef": reference}}
	f.home.create("/api/v1/namespaces/"+f.namespace+"/serviceaccounts/default/token", asked, &token)
	secret := object{"metadata": object{"name": name}, "data": object{"token": []byte(token.Status.Token)}}
	f.lender.create(f.secrets(), secret, nil)
	spec := forge(one.Spec, name)
	shadow := object{
		"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod",
		"metadata": object{"name": name, "labels": one.Metadata.Labels}, "spec": object{"pod": spec},
	}
	var made pod
	f.lender.create(f.shadows(), shadow, &made)
	owner := object{
		"apiVersion": "offloading.liqo.io/v1beta1", "kind": "ShadowPod", "name": name, "uid": made.Metadata.UID,
		"controller": true,
	}
	labels := object{"floor": "yes"}
	if given, ok := one.Metadata.Labels.(object); ok {
		for key, value := range given {
			labels[key] = value
		}
	}
	metadata := object{"name": name, "labels": labels, "ownerReferences": []object{owner}}
	f.lender.create(f.pods(), object{"metadata": metadata, "spec": spec}, nil)
}

// forge returns the spec of a pod as the lender runs it: its token comes from the secret of its name.
func forge(spec object, name string) object {
	made := object{}
	for key, value := range spec {
		switch key {
		case "nodeName", "nodeSelector", "serviceAccount", "serviceAccountName", "tolerations", "priority",
			"preemptionPolicy":
		default:
			made[key] = value
		}
	}
	volumes := []object{}
	for _, one := range spec["volumes"].([]any) {
		volume := one.(object)
		if volume["projected"] != nil {
			volume = object{"name": volume["name"], "secret": object{"secretName": name}}
		}
		volumes = append(volumes, volume)
	}
	made["volumes"] = volumes
	made["automountServiceAccountToken"] = false
	return made
}

func (f *floor) lenderPod(kind string, one *pod) {
	name := one.Metadata.Name
	f.lock.Lock()
	defer f.lock.Unlock()
	if kind == "DELETED" {
		if uid := f.leaving[name]; uid != "" {
			options := object{"gracePeriodSeconds": 0, "preconditions": object{"uid": uid}}
			go f.home.remove(f.pods()+"/"+name, options)
		}
		return
	}
	for _, condition := range one.Status.Conditions {
		if condition.Type == "Ready" && condition.Status == "True" && !f.shown[name] && one.raw != nil {
			f.shown[name] = true
			go f.show(name, one.raw)
		}
	}
}

// show writes the status that a pod has at the lender to the pod at home.
func (f *floor) show(name string, raw json.RawMessage) {
	var whole object
	must(json.Unmarshal(raw, &whole))
	f.home.patch(f.pods()+"/"+name+"/status", object{"status": whole["status"]})
}

// beat makes the node and renews its lease, as a kubelet does.
func (f *floor) beat() {
	amount := object{"cpu": "10000", "memory": "100Ti", "pods": "100000"}
	f.home.create("/api/v1/nodes", object{
		"metadata": object{"name": f.node, "labels": object{"type": "floor"}},
		"status":   object{"capacity": amount, "allocatable": amount},
	}, nil)
	path := "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
	spec := func() object {
		now := time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")
		return object{"holderIdentity": f.node, "leaseDurationSeconds": 40, "renewTime": now}
	}
	f.home.create(path, object{"metadata": object{"name": f.node}, "spec": spec()}, nil)
	ready := object{
		"type": "Ready", "status": "True", "reason": "Floor",
		"lastHeartbeatTime": time.Now().UTC().Format(time.RFC3339), "lastTransitionTime": time.Now().UTC().Format(time.RFC3339),
	}
	f.home.patch("/api/v1/nodes/"+f.node+"/status", object{"status": object{"conditions": []object{ready}}})
	fmt.Println("ready")
	for range time.Tick(10 * time.Second) {
		f.home.patch(path+"/"+f.node, object{"spec": spec()})
	}
}

func main() {
	home := flag.String("home", "", "the kubeconfig of the cluster whose pods run elsewhere")
	lender := flag.String("lender", "", "the kubeconfig of the cluster where they run")
	namespace := flag.String("namespace", "floor", "the namespace in both")
	node := flag.String("node", "floor", "the node at home")
	parallel := flag.Int("parallel", 16, "requests to one API server at a time")
	flag.Parse()
	f := &floor{
		home: connect(*home, *parallel), lender: connect(*lender, *parallel), node: *node, namespace: *namespace,
		known: map[string]string{}, leaving: map[string]string{}, shown: map[string]bool{},
	}
	go f.home.watch(f.pods(), "fieldSelector=spec.nodeName="+*node, f.homePod)
	go f.lender.watch(f.pods(), "labelSelector=floor=yes", f.lenderPod)
	f.beat()
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
