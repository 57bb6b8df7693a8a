//! The cases of AWS's own test suite for signers, by the names that they have there, and what it leaves out.

use super::*;

const KEY_ID: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
const HOST: &str = "example.amazonaws.com";
/// 2015-08-30T12:36:00Z.
const NOW: i64 = 1_440_938_160;
const STS_TOKEN: &str = "6e86291e8372ff2a2260956d9b8aae1d763fbf315fa00fa31553b73ebf194267";

fn credentials(token: Option<&str>) -> Credentials {
    Credentials::new(KEY_ID, Secret::new(SECRET), token.map(Secret::new)).unwrap()
}

fn service() -> Service {
    Service {
        region: "us-east-1".into(),
        name: "service",
    }
}

fn request<'a>(method: &'a str, target: &'a str) -> Unsigned<'a> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Unsigned {
        method,
        path,
        query,
        host: HOST,
        content_type: "application/json",
        body_digest: Sha256::digest(b"").into(),
    }
}

/// Hash of the canonical request and signature, with these headers besides `host` and the date.
fn signed(request: &Unsigned<'_>, more: &[(&str, &str)]) -> (String, String) {
    let time = compact_time(NOW);
    let mut headers = vec![("host", HOST), ("x-amz-date", &time)];
    headers.extend_from_slice(more);
    headers.sort_unstable();
    let payload = hex(&request.body_digest);
    let canonical = canonical_request(request, &headers, &payload);
    let authorization = credentials(None).authorization(&canonical, &headers, &service(), &time);
    let (rest, signature) = authorization.split_once(", Signature=").unwrap();
    let scope = "20150830/us-east-1/service/aws4_request";
    let expected = format!(
        "AWS4-HMAC-SHA256 Credential={KEY_ID}/{scope}, SignedHeaders={}",
        names(&headers)
    );
    assert_eq!(rest, expected);
    let to_sign = string_to_sign(&canonical, &time, scope);
    let digest = to_sign.strip_prefix(&format!("AWS4-HMAC-SHA256\n20150830T123600Z\n{scope}\n"));
    (digest.unwrap().to_owned(), signature.to_owned())
}

#[test]
fn the_suite_of_aws() {
    let unreserved = "/?-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz=\
                      -._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    for (name, request, digest, signature) in [
        (
            "get-vanilla",
            request("GET", "/"),
            "bb579772317eb040ac9ed261061d46c1f17a8133879d6129b6e1c25292927e63",
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
        ),
        (
            "post-vanilla",
            request("POST", "/"),
            "553f88c9e4d10fc9e109e2aeb65f030801b70c2f6468faca261d401ae622fc87",
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
        ),
        (
            "get-vanilla-empty-query-key",
            request("GET", "/?Param1=value1"),
            "1e24db194ed7d0eec2de28d7369675a243488e08526e8c1c73571282f7c517ab",
            "a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
        ),
        (
            "get-vanilla-query-order-key-case",
            request("GET", "/?Param2=value2&Param1=value1"),
            "816cd5b414d056048ba4f7c5386d6e0533120fb1fcfa93762cf0fc39e2cf19e0",
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
        ),
        (
            "get-vanilla-query-order-encoded",
            request("GET", "/?Param-3=Value3&Param=Value2&%E1%88%B4=Value1"),
            "868294f5c38bd141c4972a373a76654f1418a8e4fc18b2e7903ae45e8ae0ec71",
            "371d3713e185cc334048618a97f809c9ffe339c62934c032af5a0e595648fcac",
        ),
        (
            "get-vanilla-query-unreserved",
            request("GET", unreserved),
            "c30d4703d9f799439be92736156d47ccfb2d879ddf56f5befa6d1d6aab979177",
            "9c3e54bfcdf0b19771a7f523ee5669cdf59bc7cc0884027167c21bb143a40197",
        ),
        (
            "get-space",
            request("GET", "/example space/"),
            "63ee75631ed7234ae61b5f736dfc7754cdccfedbff4b5128a915706ee9390d86",
            "652487583200325589f1fba4c7e578f72c47cb61beeca81406b39ddec1366741",
        ),
        (
            "get-utf8",
            request("GET", "/ሴ"),
            "2a0a97d02205e45ce2e994789806b19270cfbbb0921b278ccf58f5249ac42102",
            "8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85",
        ),
    ] {
        let expected = (digest.to_owned(), signature.to_owned());
        assert_eq!(signed(&request, &[]), expected, "{name}");
    }
}

#[test]
fn the_suite_of_aws_with_a_session_token() {
    let token = [("x-amz-security-token", STS_TOKEN)];
    assert_eq!(
        signed(&request("GET", "/"), &token).1,
        "07ec1639c89043aa0e3e2de82b96708f198cceab042d4a97044c66dd9f74e7f8",
        "get-vanilla-with-session-token"
    );
}

#[test]
fn the_suite_of_aws_with_a_body() {
    let body_digest: [u8; 32] = Sha256::digest(b"Param1=value1").into();
    let payload = hex(&body_digest);
    let more = [
        ("content-length", "13"),
        ("content-type", "application/x-www-form-urlencoded"),
        ("x-amz-content-sha256", &payload),
    ];
    let request = Unsigned {
        body_digest,
        ..request("POST", "/")
    };
    assert_eq!(
        signed(&request, &more).1,
        "d3875051da38690788ef43de4db0d8f280229d82040bfac253562e56c3f20e0b",
        "post-x-www-form-urlencoded"
    );
}

#[test]
fn a_model_id_is_encoded_twice() {
    let model =
        path_segment("arn:aws:bedrock:us-east-1:1:inference-profile/us.anthropic.claude-v1:0");
    assert_eq!(
        model,
        "arn%3Aaws%3Abedrock%3Aus-east-1%3A1%3Ainference-profile%2Fus.anthropic.claude-v1%3A0"
    );
    let target = format!("/model/{}/invoke", path_segment("anthropic.claude-v1:0"));
    let canonical = canonical_request(&request("POST", &target), &[], "");
    let path = canonical.lines().nth(1);
    assert_eq!(path, Some("/model/anthropic.claude-v1%253A0/invoke"));
}

/// Just before midnight and at midnight, requests carry the day of their own time and are signed with its key.
#[test]
fn the_day_changes_at_midnight_utc() {
    let midnight = 1_440_979_200; // 2015-08-31T00:00:00Z
    let kept = credentials(None);
    let mut signatures = Vec::new();
    for (now, time, day) in [
        (midnight - 1, "20150830T235959Z", "20150830"),
        (midnight, "20150831T000000Z", "20150831"),
        (midnight - 1, "20150830T235959Z", "20150830"),
    ] {
        let lines = kept.sign(&request("GET", "/"), &service(), now);
        assert!(
            lines.contains(&format!("x-amz-date: {time}\r\n")),
            "{lines}"
        );
        let credential = format!("Credential={KEY_ID}/{day}/us-east-1/service/aws4_request,");
        assert!(lines.contains(&credential), "{lines}");
        // Keys that are derived anew sign alike: the cached key is never that of another day.
        let fresh = credentials(None).sign(&request("GET", "/"), &service(), now);
        assert_eq!(lines, fresh);
        signatures.push(lines);
    }
    assert_ne!(signatures[0], signatures[1]);
    assert_eq!(signatures[0], signatures[2]);
}

#[test]
fn all_lines_that_are_sent_are_signed() {
    let lines = credentials(Some(STS_TOKEN)).sign(&request("POST", "/"), &service(), NOW);
    let names: Vec<_> = lines
        .lines()
        .map(|line| line.split(':').next().unwrap())
        .collect();
    assert_eq!(
        names,
        [
            "x-amz-date",
            "x-amz-content-sha256",
            "authorization",
            "x-amz-security-token"
        ]
    );
    let signed =
        "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date;x-amz-security-token,";
    assert!(lines.contains(signed), "{lines}");
    assert!(!lines.contains(SECRET));
    assert!(!format!("{:?}", credentials(Some(STS_TOKEN))).contains(STS_TOKEN));
}
