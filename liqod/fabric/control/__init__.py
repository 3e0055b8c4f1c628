"""Control: what is agreed with peers, which addresses they get, and what the records say. It changes no host.

It decides a ``DesiredNetwork`` from the records and the ``HostReport``, hands it to a ``NetworkAgent``, and writes down
what that reports. It needs no right on the host's network, and imports nothing of ``fabric.agent``.
"""
