//! Which addresses a name may have: only those of the public internet.
//!
//! The ranges are those of the IANA registries of special-purpose IPv4 and IPv6 addresses (RFC 6890 and what
//! later added to it). IPv6 is the other way round: what is not in 2000::/3, the only range from which global
//! unicast addresses are given out, is refused without being listed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// What is wrong with an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
pub enum AddressKind {
    /// `0.0.0.0/8`, `::`: this host, this network.
    #[error("unspecified")]
    Unspecified,
    /// `127.0.0.0/8`, `::1`.
    #[error("loopback")]
    Loopback,
    /// `10/8`, `172.16/12`, `192.168/16`; `fc00::/7` and the old site-local `fec0::/10`.
    #[error("private")]
    Private,
    /// `169.254/16`, `fe80::/10`.
    #[error("link-local")]
    LinkLocal,
    /// Where clouds answer questions about the machine and its credentials.
    #[error("metadata service")]
    Metadata,
    /// `100.64/10`: behind a carrier's translation.
    #[error("carrier-grade NAT")]
    CarrierNat,
    /// `198.18/15`, `2001:2::/48`.
    #[error("benchmarking")]
    Benchmarking,
    /// `192.0.2/24`, `198.51.100/24`, `203.0.113/24`, `2001:db8::/32`, `3fff::/20`.
    #[error("documentation")]
    Documentation,
    /// `224/4`, `ff00::/8`.
    #[error("multicast")]
    Multicast,
    /// `255.255.255.255`.
    #[error("broadcast")]
    Broadcast,
    /// Set apart for something else, or for nothing yet.
    #[error("reserved")]
    Reserved,
    /// An IPv4 address inside an IPv6 one, in a form that no name has for a good reason: mapped, compatible,
    /// 6to4, Teredo, local NAT64.
    #[error("an IPv4 address in disguise")]
    Embedded,
    /// An address of the very machine on which the proxy runs.
    #[error("this machine")]
    OwnMachine,
}

/// The metadata service of most clouds.
const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// Other metadata services, as they are documented: Alibaba Cloud, and Azure's WireServer, which is a public address.
const METADATA_ELSEWHERE: [Ipv4Addr; 2] =
    [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];

/// Metadata services over IPv6: Amazon, Google, Oracle and Alibaba have theirs in `fd00::/8` or `fe80::/10`, where
/// everything is refused; these get their own word. Amazon's DNS and time are in the first /64 too.
const METADATA_V6: [(Ipv6Addr, u32); 3] = [
    (Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0), 64),
    (Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254), 128),
    (Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe), 128),
];

/// IPv4 in order; the first that matches names the kind.
const V4: [(Ipv4Addr, u32, AddressKind); 19] = {
    use AddressKind as Kind;
    const fn ip(a: u8, b: u8, c: u8, d: u8) -> Ipv4Addr {
        Ipv4Addr::new(a, b, c, d)
    }
    [
        (METADATA, 32, Kind::Metadata),
        (METADATA_ELSEWHERE[0], 32, Kind::Metadata),
        (METADATA_ELSEWHERE[1], 32, Kind::Metadata),
        (ip(0, 0, 0, 0), 8, Kind::Unspecified),
        (ip(10, 0, 0, 0), 8, Kind::Private),
        (ip(100, 64, 0, 0), 10, Kind::CarrierNat),
        (ip(127, 0, 0, 0), 8, Kind::Loopback),
        (ip(169, 254, 0, 0), 16, Kind::LinkLocal),
        (ip(172, 16, 0, 0), 12, Kind::Private),
        (ip(192, 0, 0, 0), 24, Kind::Reserved),
        (ip(192, 0, 2, 0), 24, Kind::Documentation),
        (ip(192, 88, 99, 0), 24, Kind::Reserved),
        (ip(192, 168, 0, 0), 16, Kind::Private),
        (ip(198, 18, 0, 0), 15, Kind::Benchmarking),
        (ip(198, 51, 100, 0), 24, Kind::Documentation),
        (ip(203, 0, 113, 0), 24, Kind::Documentation),
        (ip(224, 0, 0, 0), 4, Kind::Multicast),
        (ip(255, 255, 255, 255), 32, Kind::Broadcast),
        (ip(240, 0, 0, 0), 4, Kind::Reserved),
    ]
};

/// IPv6 in order; what is in none of them and not in 2000::/3 is reserved.
const V6: [(Ipv6Addr, u32, AddressKind); 15] = {
    use AddressKind as Kind;
    const fn ip(a: u16, b: u16, c: u16) -> Ipv6Addr {
        Ipv6Addr::new(a, b, c, 0, 0, 0, 0, 0)
    }
    [
        (Ipv6Addr::UNSPECIFIED, 128, Kind::Unspecified),
        (Ipv6Addr::LOCALHOST, 128, Kind::Loopback),
        // Mapped (::ffff:0:0/96), translated (::ffff:0:0:0/96) and compatible (::/96) addresses are all in here.
        (ip(0, 0, 0), 64, Kind::Embedded),
        (ip(0x64, 0xff9b, 1), 48, Kind::Embedded),
        (ip(0x2001, 0, 0), 32, Kind::Embedded),
        (ip(0x2002, 0, 0), 16, Kind::Embedded),
        (ip(0x2001, 2, 0), 48, Kind::Benchmarking),
        (ip(0x2001, 0xdb8, 0), 32, Kind::Documentation),
        (ip(0x3fff, 0, 0), 20, Kind::Documentation),
        // The rest of what IETF protocols have for themselves.
        (ip(0x2001, 0, 0), 23, Kind::Reserved),
        (ip(0xfc00, 0, 0), 7, Kind::Private),
        (ip(0xfec0, 0, 0), 10, Kind::Private),
        (ip(0xfe80, 0, 0), 10, Kind::LinkLocal),
        (ip(0xff00, 0, 0), 8, Kind::Multicast),
        (ip(0x5f00, 0, 0), 16, Kind::Reserved),
    ]
};

/// The prefix of NAT64 (RFC 6052): what a resolver of a network without IPv4 answers for a name that has IPv4 only.
const NAT64: Ipv6Addr = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0);

/// Judges one address. Pure: whether it is one of this machine is not known here.
///
/// # Errors
/// What kind of address it is.
pub fn judge(address: IpAddr) -> Result<(), AddressKind> {
    match address {
        IpAddr::V4(address) => judge_v4(address),
        IpAddr::V6(address) => judge_v6(address),
    }
}

/// Judges all that a resolver answered. One bad address refuses the name: a name that has a public and a private
/// address at once is an attack or a mistake, and going on with the rest would make which one it is invisible.
///
/// # Errors
/// The first bad address and its kind.
pub fn judge_all(addresses: &[IpAddr]) -> Result<(), (IpAddr, AddressKind)> {
    addresses
        .iter()
        .try_for_each(|address| judge(*address).map_err(|kind| (*address, kind)))
}

fn judge_v4(address: Ipv4Addr) -> Result<(), AddressKind> {
    let bits = address.to_bits();
    let inside = |network: Ipv4Addr, length: u32| (bits ^ network.to_bits()).leading_zeros() >= length;
    let found = V4.iter().find(|(network, length, _)| inside(*network, *length));
    found.map_or(Ok(()), |(_, _, kind)| Err(*kind))
}

fn judge_v6(address: Ipv6Addr) -> Result<(), AddressKind> {
    let bits = address.to_bits();
    let inside = |network: Ipv6Addr, length: u32| (bits ^ network.to_bits()).leading_zeros() >= length;
    if inside(NAT64, 96) {
        let [.., a, b, c, d] = address.octets();
        return judge_v4(Ipv4Addr::new(a, b, c, d));
    }
    if METADATA_V6
        .iter()
        .any(|(network, length)| inside(*network, *length))
    {
        return Err(AddressKind::Metadata);
    }
    let found = V6.iter().find(|(network, length, _)| inside(*network, *length));
    match found {
        Some((_, _, kind)) => Err(*kind),
        None if inside(Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3) => Ok(()),
        None => Err(AddressKind::Reserved),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn kind(text: &str) -> Option<AddressKind> {
        judge(text.parse().unwrap()).err()
    }

    #[test]
    fn public_addresses_are_allowed() {
        for text in [
            "93.184.216.34",
            "1.1.1.1",
            "8.8.8.8",
            "100.63.255.255",
            "100.128.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700::1111",
            "2001:4860:4860::8888",
            "2a00:1450::1",
            "64:ff9b::5db8:d822",
        ] {
            assert_eq!(kind(text), None, "{text}");
        }
    }

    #[test]
    fn every_other_kind_is_named() {
        use AddressKind as Kind;
        for (text, expected) in [
            ("0.0.0.0", Kind::Unspecified),
            ("0.1.2.3", Kind::Unspecified),
            ("10.255.255.255", Kind::Private),
            ("100.64.0.1", Kind::CarrierNat),
            ("100.100.100.200", Kind::Metadata),
            ("127.255.255.254", Kind::Loopback),
            ("168.63.129.16", Kind::Metadata),
            ("169.254.169.254", Kind::Metadata),
            ("169.254.170.2", Kind::LinkLocal),
            ("172.16.0.1", Kind::Private),
            ("172.31.255.255", Kind::Private),
            ("192.0.0.192", Kind::Reserved),
            ("192.0.2.1", Kind::Documentation),
            ("192.88.99.1", Kind::Reserved),
            ("192.168.1.1", Kind::Private),
            ("198.18.0.1", Kind::Benchmarking),
            ("198.19.255.255", Kind::Benchmarking),
            ("198.51.100.1", Kind::Documentation),
            ("203.0.113.1", Kind::Documentation),
            ("224.0.0.1", Kind::Multicast),
            ("239.255.255.255", Kind::Multicast),
            ("240.0.0.1", Kind::Reserved),
            ("255.255.255.255", Kind::Broadcast),
            ("::", Kind::Unspecified),
            ("::1", Kind::Loopback),
            ("::127.0.0.1", Kind::Embedded),
            ("::ffff:127.0.0.1", Kind::Embedded),
            ("::ffff:93.184.216.34", Kind::Embedded),
            ("::ffff:0:10.0.0.1", Kind::Embedded),
            ("64:ff9b::10.0.0.1", Kind::Private),
            ("64:ff9b::169.254.169.254", Kind::Metadata),
            ("64:ff9b::127.0.0.1", Kind::Loopback),
            ("64:ff9b:1::a00:1", Kind::Embedded),
            ("2001::1", Kind::Embedded),
            ("2002:7f00:1::", Kind::Embedded),
            ("2002:a9fe:a9fe::", Kind::Embedded),
            ("2001:2::1", Kind::Benchmarking),
            ("2001:10::1", Kind::Reserved),
            ("2001:20::1", Kind::Reserved),
            ("2001:db8::1", Kind::Documentation),
            ("3fff::1", Kind::Documentation),
            ("100::1", Kind::Reserved),
            ("4000::1", Kind::Reserved),
            ("5f00::1", Kind::Reserved),
            ("fc00::1", Kind::Private),
            ("fd12:3456::1", Kind::Private),
            ("fd00:ec2::254", Kind::Metadata),
            ("fd20:ce::254", Kind::Metadata),
            ("fd00:c1::a9fe:a9fe", Kind::Metadata),
            ("fe80::1", Kind::LinkLocal),
            ("fe80::a9fe:a9fe", Kind::LinkLocal),
            ("fec0::1", Kind::Private),
            ("ff02::1", Kind::Multicast),
        ] {
            assert_eq!(kind(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn one_bad_address_refuses_all() {
        let list = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>();
        assert_eq!(judge_all(&list(&["93.184.216.34", "2606:4700::1"])), Ok(()));
        let mixed = list(&["93.184.216.34", "10.0.0.1", "::1"]);
        assert_eq!(judge_all(&mixed), Err((mixed[1], AddressKind::Private)));
    }

    proptest! {
        #[test]
        fn what_the_standard_library_calls_special_is_refused(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let special = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_unspecified() || address.is_multicast() || address.is_broadcast() || address.is_documentation();
            if special {
                prop_assert!(judge(address.into()).is_err());
            }
        }

        #[test]
        fn no_disguise_makes_a_bad_address_good(bits: u32, salt: u64) {
            let address = Ipv4Addr::from_bits(bits);
            let [a, b, c, d] = address.octets();
            let word = |high, low| u16::from_be_bytes([high, low]);
            let (high, low) = (word(a, b), word(c, d));
            let salted = salt.to_be_bytes();
            let forms = [
                address.to_ipv6_mapped(),
                address.to_ipv6_compatible(),
                Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, high, low),
                Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, high, low),
                Ipv6Addr::new(0x2002, high, low, word(salted[0], salted[1]), 0, 0, 0, word(salted[2], salted[3])),
                Ipv6Addr::new(0x2001, 0, high, low, 0, 0, !high, !low),
            ];
            for form in forms {
                prop_assert!(judge(form.into()).is_err(), "{form}");
            }
            let nat64 = Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, high, low);
            prop_assert_eq!(judge(nat64.into()), judge(address.into()));
        }

        #[test]
        fn only_global_unicast_is_allowed(bits: u128) {
            let address = Ipv6Addr::from_bits(bits);
            if judge(address.into()).is_ok() {
                prop_assert_eq!(address.segments()[0] >> 13, 1);
            }
        }
    }
}
