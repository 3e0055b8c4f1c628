"""Makes ``twistd liqod`` known to Twisted; imports nothing of the daemon before it is asked for."""

from twisted.application.service import ServiceMaker

liqod = ServiceMaker("liqod", "liqod.tap", "One big Kubernetes cluster out of many, without a hub.", "liqod")
