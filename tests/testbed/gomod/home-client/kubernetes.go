package main

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// inCluster knows nothing but what every pod is given.
func inCluster() (*kubernetes.Clientset, error) {
	configuration, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	return kubernetes.NewForConfig(configuration)
}

// watch writes down each value of "colour" that a config map has, as an informer shows it.
func watch(ctx context.Context, words []string) error {
	client, err := inCluster()
	if err != nil {
		return err
	}
	only := func(options *metav1.ListOptions) { options.FieldSelector = "metadata.name=" + words[1] }
	factory := informers.NewSharedInformerFactoryWithOptions(
		client, 0, informers.WithNamespace(words[0]), informers.WithTweakListOptions(only),
	)
	last := ""
	note := func(object any) {
		if found, is := object.(*corev1.ConfigMap); is && found.Data["colour"] != last {
			last = found.Data["colour"]
			add(words[2], last)
		}
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    note,
		UpdateFunc: func(_, object any) { note(object) },
	}
	if _, err := factory.Core().V1().ConfigMaps().Informer().AddEventHandler(handler); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	<-ctx.Done()
	return nil
}

// lead stands for election again and again, and writes down when it leads and when it does no longer.
func lead(ctx context.Context, words []string) error {
	client, err := inCluster()
	if err != nil {
		return err
	}
	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: words[0], Name: words[1]},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: words[2]},
	}
	now := func() string { return time.Now().UTC().Format("15:04:05.000") }
	for ctx.Err() == nil {
		leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
			Lock:            lock,
			ReleaseOnCancel: true,
			LeaseDuration:   15 * time.Second,
			RenewDeadline:   10 * time.Second,
			RetryPeriod:     2 * time.Second,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { add(words[3], "leads "+now()) },
				OnStoppedLeading: func() { add(words[3], "stopped "+now()) },
			},
		})
	}
	return nil
}
