module liqod.invalid/testbed/cloud-lifecycle

go 1.26.0

require (
	k8s.io/api v0.36.1
	k8s.io/client-go v0.36.1
	k8s.io/cloud-provider v0.36.1
	k8s.io/component-base v0.36.1
)
