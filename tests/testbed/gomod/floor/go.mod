module liqod.invalid/testbed/floor

go 1.26.0
