"""State of every link and queue, from switches' reports.

`snapshot` is the view of all readers; `link_state` keeps rate, queue, latency and age of each link and queue from any
source of reports (in `link_native`, a batch at a time). Probes are one source: `probes` plans which of them cross which
links, `probe_reports` tracks them and their losses (in `probe_native`), `prober` sends and receives them. Switches' own
telemetry reports are another: `collector` decodes reports of links, flows and switches and counts lost ones (in
`report_native`), `report_socket` receives them. `link_watch` detects links that are down.
"""
