"""What is known of every link and queue, from reports that switches make.

`snapshot` is what every reader gets, `link_state` keeps rate, queue, latency and age of each link and queue from any
source of reports (in `link_native`, a batch at a time). Probes are one source: `probes` plans which cross which links,
`probe_reports` keeps their books and says what is lost (in `probe_native`), `prober` sends and receives them.
Telemetry reports that switches send by themselves are another: `collector` says what they tell of links, flows and
switches and how many are lost (in `report_native`), `report_socket` receives them. `link_watch` says which links are
down.
"""
