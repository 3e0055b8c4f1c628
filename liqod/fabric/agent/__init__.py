"""The network agent: it alone changes the host's network, from a ``DesiredNetwork`` to a ``NetworkReport``.

It is the half that will be a process of its own, with the capabilities NET_ADMIN and NET_RAW; it imports nothing of
``fabric.control``.
"""
