//! Whether a browser sent a request for a page of ours. A cookie travels with requests that any page brings about,
//! so a request that changes something must come from our own origin or from one of `cors_origins`. Browsers say
//! where a request comes from in `Sec-Fetch-Site` and `Origin`, and pages cannot forge these; a client that sends
//! neither is no browser.

use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, header};

/// Whether the request may change something. `listed` are the origins of `cors_origins`; behind a trusted proxy
/// the host that the browser asked for may stand in `X-Forwarded-Host`.
pub fn is_ours(parts: &Parts, listed: &[String], trust_proxy: bool) -> bool {
    let headers = &parts.headers;
    let origin = text(headers, header::ORIGIN.as_str());
    if origin.is_some_and(|origin| listed.iter().any(|listed| listed == origin)) {
        return true;
    }
    if headers.contains_key("sec-fetch-site") {
        return matches!(text(headers, "sec-fetch-site"), Some("same-origin" | "none"));
    }
    if !headers.contains_key(header::ORIGIN) {
        return true;
    }
    let Some((scheme, authority)) = origin.and_then(|origin| origin.split_once("://")) else { return false };
    let asked = parts.uri.authority().map(Authority::as_str);
    let forwarded = if trust_proxy { text(headers, "x-forwarded-host") } else { None };
    let hosts = [text(headers, header::HOST.as_str()), asked, forwarded];
    hosts.into_iter().flatten().any(|host| is_same(host, authority, scheme))
}

/// Whether both name the same host and port; a port that goes without saying may be missing.
fn is_same(host: &str, authority: &str, scheme: &str) -> bool {
    let port = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let bare = |text: &str| text.strip_suffix(port).unwrap_or(text).to_ascii_lowercase();
    bare(host) == bare(authority)
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Request;
    use rstest::rstest;

    #[rstest]
    // no browser
    #[case(&[], true)]
    #[case(&[("sec-fetch-site", "same-origin")], true)]
    // typed by a person
    #[case(&[("sec-fetch-site", "none")], true)]
    #[case(&[("sec-fetch-site", "same-site")], false)]
    #[case(&[("sec-fetch-site", "cross-site")], false)]
    #[case(&[("sec-fetch-site", "cross-site"), ("origin", "http://halo.test:9527")], false)]
    // a development server in front that changes the host
    #[case(&[("sec-fetch-site", "same-origin"), ("origin", "http://localhost:3000")], true)]
    #[case(&[("origin", "http://halo.test:9527")], true)]
    #[case(&[("origin", "https://HALO.test:9527")], true)]
    #[case(&[("origin", "http://halo.test")], false)]
    #[case(&[("origin", "http://halo.test:95270")], false)]
    #[case(&[("origin", "http://evil.test")], false)]
    #[case(&[("origin", "http://evil.test"), ("x-forwarded-host", "evil.test")], false)]
    #[case(&[("origin", "null")], false)]
    #[case(&[("origin", "")], false)]
    #[case(&[("origin", "file://halo.test:9527")], false)]
    // what `cors_origins` lists
    #[case(&[("origin", "https://good.test")], true)]
    #[case(&[("origin", "https://good.test"), ("sec-fetch-site", "cross-site")], true)]
    #[case(&[("origin", "https://good.test.evil")], false)]
    fn only_our_own_pages_and_listed_ones_may_change_something(
        #[case] headers: &[(&str, &str)],
        #[case] expected: bool,
    ) {
        let mut request = Request::post("/api/auth/logout").header("host", "halo.test:9527");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        assert_eq!(is_ours(&parts, &["https://good.test".to_owned()], false), expected);
    }

    #[rstest]
    #[case("halo.test", "https://halo.test", true)]
    #[case("halo.test:443", "https://halo.test", true)]
    #[case("halo.test", "http://halo.test:80", true)]
    #[case("halo.test:80", "https://halo.test", false)]
    fn a_port_that_goes_without_saying_may_be_missing(
        #[case] host: &str,
        #[case] origin: &str,
        #[case] expected: bool,
    ) {
        let request = Request::post("/").header("host", host).header("origin", origin);
        assert_eq!(is_ours(&request.body(()).unwrap().into_parts().0, &[], false), expected);
    }

    #[test]
    fn a_trusted_proxy_says_which_host_the_browser_asked_for() {
        let request = Request::post("/").header("host", "10.0.0.2:9527");
        let request = request.header("x-forwarded-host", "halo.test").header("origin", "https://halo.test");
        let parts = request.body(()).unwrap().into_parts().0;
        assert!(is_ours(&parts, &[], true) && !is_ours(&parts, &[], false));
    }
}
