"""The control part of the network: negotiates with peers, assigns addresses, writes the records. It changes no host.

It computes a ``DesiredNetwork`` from the records and the ``HostReport``, passes it to a ``NetworkAgent``, and records
the report of that. It needs no privileges on the host, and imports nothing of ``fabric.agent``.
"""
