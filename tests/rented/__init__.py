"""Sessions whose tests run in containers of a Modal service on the loopback interface."""
