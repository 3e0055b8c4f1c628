// Package suite keeps Kubernetes' end-to-end tests among the requirements of this module; see tests/testbed/build.py.
package suite

import _ "k8s.io/kubernetes/test/e2e"
