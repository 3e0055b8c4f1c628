"""Trust: authentication of keys, pairing by token, key rotation, distrust."""
