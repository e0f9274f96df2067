"""What is known of every link, from probes that switches fill in on their way.

`probes` plans which probes cross which links, `prober` sends and receives them, `link_state` keeps rate, queue,
latency, loss and age of each link (in `link_native`, a batch at a time), `link_watch` says which links are down, and
`loads` is what other rooms read.
"""
