//! The lines that Envoy needs. It is led by memory, through a dynamic module.

use std::fmt::Write as _;

use sidelong_config::{Cluster, ServerAddress, Site};

/// A listener with a virtual host for each site, and the sites' clusters, as YAML.
pub(super) fn lines(cluster: &Cluster, prefix: &str) -> String {
    let sites = || cluster.sites.iter().enumerate();
    let hosts: String = sites().map(|(_, site)| virtual_host(site, prefix)).collect();
    let clusters: String = sites().map(|(index, site)| of_site(cluster, index, site, prefix)).collect();
    format!("{HEAD}{hosts}  clusters:\n{clusters}")
}

const HEAD: &str = r#"static_resources:
  listeners:
  - name: sidelong
    address: { socket_address: { address: 0.0.0.0, port_value: 80 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: sidelong
          http_filters:
          - name: sidelong_admission
            typed_config:
              "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter
              dynamic_module_config: { name: sidelong_envoy }
              filter_name: admission
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
          route_config:
            ignore_port_in_host_matching: true
            virtual_hosts:
"#;

fn virtual_host(site: &Site, prefix: &str) -> String {
    let domains: Vec<_> = site.hosts.iter().map(|host| format!("{host:?}")).collect();
    format!(
        r#"            - name: {name:?}
              domains: [{domains}]
              routes:
              - match: {{ prefix: / }}
                route:
                  cluster: {name:?}
                  retry_policy:
                    retry_on: connect-failure,refused-stream,reset-before-request
                    retry_host_predicate:
                    - name: envoy.retry_host_predicates.previous_hosts
                      typed_config: {{ "@type": type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate }}
              typed_per_filter_config:
                sidelong_admission:
                  "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilterPerRoute
                  dynamic_module_config: {{ name: sidelong_envoy }}
                  filter_name: admission
                  filter_config: {{ "@type": type.googleapis.com/google.protobuf.StringValue, value: {words:?} }}
"#,
        name = site.name,
        words = words(site, prefix),
        domains = domains.join(", "),
    )
}

/// The cluster of a site.
fn of_site(cluster: &Cluster, index: usize, site: &Site, prefix: &str) -> String {
    let mut endpoints = String::new();
    for node in &cluster.nodes {
        let address = match node.address(index) {
            ServerAddress::Tcp(address) => {
                format!("socket_address: {{ address: \"{}\", port_value: {} }}", address.ip(), address.port())
            }
            ServerAddress::Unix(path) => format!("pipe: {{ path: {path:?} }}"),
        };
        let _ = writeln!(endpoints, "        - endpoint: {{ address: {{ {address} }} }}");
    }
    format!(
        r#"  - name: {name:?}
    connect_timeout: 1s
    load_assignment:
      cluster_name: {name:?}
      endpoints:
      - lb_endpoints:
{endpoints}    load_balancing_policy:
      policies:
      - typed_extension_config:
          name: envoy.load_balancing_policies.dynamic_modules
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.load_balancing_policies.dynamic_modules.v3.DynamicModulesLoadBalancerConfig
            dynamic_module_config: {{ name: sidelong_envoy }}
            lb_policy_name: sidelong
            lb_policy_config: {{ "@type": type.googleapis.com/google.protobuf.StringValue, value: {words:?} }}
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{ http_protocol_options: {{}} }}
        http_filters:
        - name: sidelong_request
          typed_config:
            "@type": type.googleapis.com/envoy.extensions.filters.http.dynamic_modules.v3.DynamicModuleFilter
            dynamic_module_config: {{ name: sidelong_envoy }}
            filter_name: request
        - name: envoy.filters.http.upstream_codec
          typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.upstream_codec.v3.UpstreamCodec }}
"#,
        name = site.name,
        words = words(site, prefix),
    )
}

/// A site as the module's configuration names it.
fn words(site: &Site, prefix: &str) -> String {
    format!("{prefix} {}", site.name)
}
