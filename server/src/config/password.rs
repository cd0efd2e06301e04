//! The admin password: rules, the stored form `scrypt$N=16384,r=8,p=1$<salt>$<digest>`, and the check, which
//! answers no to every stored text that is malformed. How often one may try is the business of the surface.

use super::value::Value;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::RngExt;
use secrecy::{ExposeSecret, SecretString};
use subtle::ConstantTimeEq;

const LOG_N: u8 = 14;
const R: u32 = 8;
const P: u32 = 1;
const SALT_BYTES: usize = 16;
const DIGEST_BYTES: usize = 32;

/// The most memory that a stored hash may ask for, in bytes, and the most passes over it.
const MAX_MEMORY: u64 = 128 * 1024 * 1024;
const MAX_PASSES: u32 = 4;

/// The password that opens the admin surface.
#[derive(Clone, Debug)]
pub enum AdminPassword {
    /// There is none, so nobody logs in.
    None,
    /// The stored hash.
    Hashed(SecretString),
    /// `HALO_PASSWORD`, which is the password itself.
    Environment(SecretString),
    /// Made a moment ago by the first start, and not stored yet.
    FirstStart(SecretString),
}

impl AdminPassword {
    /// Whether there is a password at all.
    pub fn is_set(&self) -> bool {
        !matches!(self, Self::None)
    }

    /// Whether the candidate is the password. With a stored hash this takes some 50 ms of one core and
    /// 16 MiB: call it from a thread that may block, and not for many at once.
    pub fn matches(&self, candidate: &str) -> bool {
        match self {
            Self::None => false,
            Self::Hashed(stored) => verify(stored.expose_secret(), candidate),
            Self::Environment(plain) | Self::FirstStart(plain) => {
                plain.expose_secret().as_bytes().ct_eq(candidate.as_bytes()).into()
            }
        }
    }
}

/// The first rule that a new password breaks.
pub fn broken_rule(password: &str) -> Option<&'static str> {
    if password.chars().count() < 8 {
        Some("Password must be at least 8 characters")
    } else if !password.chars().any(char::is_alphabetic) {
        Some("Password must contain at least one letter")
    } else if !password.chars().any(|c| c.is_ascii_digit()) {
        Some("Password must contain at least one digit")
    } else {
        None
    }
}

/// scrypt refused its own parameters; never seen.
#[derive(Debug, thiserror::Error)]
#[error("the password cannot be hashed")]
pub struct HashError;

/// The stored form of a password, with a new salt. Blocks for some 50 ms.
pub fn hash(password: &str) -> Result<String, HashError> {
    let salt: [u8; SALT_BYTES] = rand::rng().random();
    let params = scrypt::Params::new(LOG_N, R, P).map_err(|_| HashError)?;
    let digest = STANDARD.encode(digest(password, &salt, params).ok_or(HashError)?);
    Ok(format!("scrypt$N={},r={R},p={P}${}${digest}", 1u32 << LOG_N, STANDARD.encode(salt)))
}

fn digest(password: &str, salt: &[u8], params: scrypt::Params) -> Option<[u8; DIGEST_BYTES]> {
    let mut digest = [0u8; DIGEST_BYTES];
    scrypt::scrypt(password.as_bytes(), salt, &params, &mut digest).ok()?;
    Some(digest)
}

/// Whether the stored text is the hash of the candidate; no for everything that is no hash of ours, or that
/// would cost too much.
pub fn verify(stored: &str, candidate: &str) -> bool {
    let Some((params, salt, expected)) = decode(stored) else { return false };
    digest(candidate, &salt, params).is_some_and(|digest| digest.ct_eq(&expected).into())
}

/// Whether the value has the stored form.
pub(super) fn is_hash(value: &Value) -> bool {
    matches!(value, Value::Secret(stored) if decode(stored.expose_secret()).is_some())
}

fn decode(stored: &str) -> Option<(scrypt::Params, Vec<u8>, [u8; DIGEST_BYTES])> {
    let parts: Vec<&str> = stored.split('$').collect();
    let [scheme, costs, salt, digest] = parts.as_slice() else { return None };
    if *scheme != "scrypt" {
        return None;
    }
    let mut costs = costs.split(',');
    let mut cost = |name: &str| -> Option<u32> {
        let number = costs.next()?.strip_prefix(name)?.strip_prefix('=')?;
        number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse().ok()).flatten()
    };
    let (n, r, p) = (cost("N")?, cost("r")?, cost("p")?);
    let affordable = 128 * u64::from(n) * u64::from(r) <= MAX_MEMORY && p <= MAX_PASSES && r <= 64;
    if costs.next().is_some() || !n.is_power_of_two() || n < 2 || !affordable {
        return None;
    }
    let params = scrypt::Params::new(n.trailing_zeros() as u8, r, p).ok()?;
    let digest = STANDARD.decode(digest).ok()?.try_into().ok()?;
    Some((params, STANDARD.decode(salt).ok()?, digest))
}

/// A random password that people can type: four groups of four letters and digits without look-alikes, some
/// 79 bits. It keeps the rules.
pub fn generate() -> SecretString {
    const ALPHABET: &[u8; 31] = b"abcdefghjkmnpqrstuvwxyz23456789";
    let mut rng = rand::rng();
    loop {
        let groups: Vec<String> = (0..4)
            .map(|_| (0..4).map(|_| char::from(ALPHABET[rng.random_range(0..ALPHABET.len())])).collect())
            .collect();
        let password = groups.join("-");
        if broken_rule(&password).is_none() {
            return password.into();
        }
    }
}

/// A new secret that signs cookies: 32 random bytes as base64.
pub fn generate_jwt_secret() -> SecretString {
    let bytes: [u8; 32] = rand::rng().random();
    STANDARD.encode(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[test]
    fn a_hash_fits_its_password_alone_and_is_salted() {
        let stored = hash("correct horse 1").unwrap();
        assert!(stored.starts_with("scrypt$N=16384,r=8,p=1$"));
        assert!(verify(&stored, "correct horse 1"));
        assert!(!verify(&stored, "correct horse 2"));
        assert_ne!(stored, hash("correct horse 1").unwrap());
    }

    #[test]
    fn a_hash_that_another_program_made_fits() {
        // made with Python's hashlib.scrypt
        let stored =
            "scrypt$N=16384,r=8,p=1$MDEyMzQ1Njc4OWFiY2RlZg==$dYe2q5/JzfinMbvPcq0QG9urqVLR6Pz102LaLNQtVp4=";
        assert!(verify(stored, "correct horse 1"));
        assert!(!verify(stored, "correct horse 2"));
    }

    #[rstest]
    #[case("")]
    #[case("plain text")]
    #[case("scrypt$N=2,r=8,p=1$c2FsdA==")]
    #[case("scrypt$N=2,r=8,p=1$c2FsdA==$AAAA$AAAA")]
    #[case("argon2$N=2,r=8,p=1$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$rubbish$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$N=2,r=8$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$N=2,r=8,p=1,q=1$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$N=x,r=8,p=1$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$N=3,r=8,p=1$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$N=0,r=8,p=1$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$N=1,r=8,p=1$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$N=2,r=0,p=1$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$N=1073741824,r=8,p=1$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$N=2,r=8,p=1000000$c2FsdA==$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    #[case("scrypt$N=2,r=8,p=1$c2FsdA==$")]
    #[case("scrypt$N=2,r=8,p=1$c2FsdA==$====")]
    #[case("scrypt$N=2,r=8,p=1$c2FsdA==$not base64!")]
    #[case("scrypt$N=2,r=8,p=1$c2FsdA==$AAAA")]
    #[case("scrypt$N=2,r=8,p=1$!$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")]
    fn a_malformed_or_too_costly_stored_text_is_simply_no(#[case] stored: &str) {
        assert!(!verify(stored, ""));
        assert!(!verify(stored, "password1"));
    }

    #[test]
    fn the_costs_of_the_stored_text_count() {
        let stored = hash("correct horse 1").unwrap();
        assert!(!verify(&stored.replace("N=16384", "N=8192"), "correct horse 1"));
    }

    #[rstest]
    #[case("a1", Some("Password must be at least 8 characters"))]
    #[case("12345678", Some("Password must contain at least one letter"))]
    #[case("abcdefgh", Some("Password must contain at least one digit"))]
    #[case("abcdefg1", None)]
    #[case("пароль12", None)]
    fn the_first_broken_rule_is_named(#[case] password: &str, #[case] rule: Option<&str>) {
        assert_eq!(broken_rule(password), rule);
    }

    #[test]
    fn a_made_password_keeps_the_rules_and_is_new_each_time() {
        let (one, two) = (generate(), generate());
        assert_eq!(one.expose_secret().len(), 19);
        assert_eq!(broken_rule(one.expose_secret()), None);
        assert_ne!(one.expose_secret(), two.expose_secret());
        assert_eq!(STANDARD.decode(generate_jwt_secret().expose_secret()).unwrap().len(), 32);
    }
}
