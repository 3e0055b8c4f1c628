"""The return of offloaded pods when own nodes have room for them again."""
