"""Tests of liqod.kubelet.pods.controller."""
