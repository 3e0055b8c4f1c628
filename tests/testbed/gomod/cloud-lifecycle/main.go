// Kubernetes' own node lifecycle controller of clouds, which deletes nodes that are not ready and have no machine, on a
// cloud that has no machine at all. What the cloud says of a node is what the source of each provider says.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/controllers/nodelifecycle"
	"k8s.io/component-base/metrics/prometheus/controllers"
)

// cloud has the name of a provider, and nothing else of one.
type cloud struct{ name string }

func (cloud) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}
func (cloud) LoadBalancer() (cloudprovider.LoadBalancer, bool)                  { return nil, false }
func (cloud) Instances() (cloudprovider.Instances, bool)                        { return nil, false }
func (c cloud) InstancesV2() (cloudprovider.InstancesV2, bool)                  { return c, true }
func (cloud) Zones() (cloudprovider.Zones, bool)                                { return nil, false }
func (cloud) Clusters() (cloudprovider.Clusters, bool)                          { return nil, false }
func (cloud) Routes() (cloudprovider.Routes, bool)                              { return nil, false }
func (c cloud) ProviderName() string                                            { return c.name }
func (cloud) HasClusterID() bool                                                { return true }

// InstanceExists looks a node without a providerID up by its name, and finds none. An error leaves the node as it is.
func (c cloud) InstanceExists(_ context.Context, node *corev1.Node) (bool, error) {
	found := node.Spec.ProviderID
	switch c.name {
	case "gce", "hcloud":
		// cloud-provider-gcp, gce_instances.go: splitProviderID; hcloud-ccm, instances.go: "unexpected prefix".
		if found != "" && !strings.HasPrefix(found, c.name+"://") {
			return false, fmt.Errorf("%s is no providerID of %s", found, c.name)
		}
	case "azure":
		// cloud-provider-azure, azure_instances_v2.go: a node that is not managed is taken to exist. What Azure does with
		// a providerID of others is not known: here it counts for nothing.
		if node.Labels["kubernetes.azure.com/managed"] == "false" {
			return true, nil
		}
	}
	return false, nil
}

func (cloud) InstanceShutdown(context.Context, *corev1.Node) (bool, error) { return false, nil }

func (cloud) InstanceMetadata(context.Context, *corev1.Node) (*cloudprovider.InstanceMetadata, error) {
	return nil, cloudprovider.InstanceNotFound
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, words []string) error {
	if len(words) != 2 {
		return fmt.Errorf("KUBECONFIG PROVIDER")
	}
	configuration, err := clientcmd.BuildConfigFromFlags("", words[0])
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(configuration)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	nodes := factory.Core().V1().Nodes()
	controller, err := nodelifecycle.NewCloudNodeLifecycleController(nodes, client, cloud{words[1]}, 2*time.Second)
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	controller.Run(ctx, controllers.NewControllerManagerMetrics("cloud-lifecycle"))
	return nil
}
