"""Tests of liqod.kubelet.lender."""
