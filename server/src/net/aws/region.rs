//! The region that a host of Amazon stands in, by its name alone.

/// Ends of the host names that hold a region.
const DOMAINS: &[&str] =
    &[".amazonaws.com", ".amazonaws.com.cn", ".api.aws", ".api.amazonwebservices.com.cn"];

/// The region in a host name such as `bedrock-runtime.us-east-1.amazonaws.com`. `None` for hosts that are not Amazon's
/// (a proxy, a stand-in on this machine) and for those without a region.
pub fn of_host(host: &str) -> Option<&str> {
    let rest = DOMAINS.iter().find_map(|domain| host.strip_suffix(domain))?;
    rest.rsplit('.').find(|label| is_region(label))
}

/// Letters, at least one more word of letters, and a number: `us-east-1`, `us-gov-west-1`.
fn is_region(label: &str) -> bool {
    let mut parts: Vec<&str> = label.split('-').collect();
    let number = parts.pop().is_some_and(|end| !end.is_empty() && end.bytes().all(|b| b.is_ascii_digit()));
    let words = parts.iter().all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase()));
    number && words && parts.len() >= 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("bedrock-runtime.us-east-1.amazonaws.com", Some("us-east-1"))]
    #[case("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", Some("us-gov-west-1"))]
    #[case("bedrock-runtime.cn-north-1.amazonaws.com.cn", Some("cn-north-1"))]
    #[case("bedrock-mantle.eu-central-1.api.aws", Some("eu-central-1"))]
    #[case(
        "vpce-0123456789abcdef0-abcd1234.bedrock-runtime.ap-southeast-2.vpce.amazonaws.com",
        Some("ap-southeast-2")
    )]
    #[case("bedrock-runtime.amazonaws.com", None)]
    #[case("bedrock-runtime.us-east-1.amazonaws.com.example.com", None)]
    #[case("us-east-1.example.com", None)]
    #[case("127.0.0.1", None)]
    fn the_region_is_read_from_hosts_of_amazon_alone(#[case] host: &str, #[case] region: Option<&str>) {
        assert_eq!(of_host(host), region);
    }
}
