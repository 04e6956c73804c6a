//! The counter-based generator Philox4x64-10: Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.

/// The multipliers of the two halves of a counter.
const MULTIPLIERS: [u64; 2] = [0xd2e7_470e_e14c_6c93, 0xca5a_8263_9512_1157];
/// What the key grows by from round to round: the golden ratio, and `sqrt(3) - 1`.
const WEYL: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xbb67_ae85_84ca_a73b];
const ROUNDS: usize = 10;

/// Returns the random words at a counter of the sequence of a key. No two counters of a sequence have the same words.
pub fn philox4x64(counter: [u64; 4], key: [u64; 2]) -> [u64; 4] {
    let ([mut a, mut b, mut c, mut d], [mut left, mut right]) = (counter, key);
    for _ in 0..ROUNDS {
        let ((high, low), (other_high, other_low)) = (product(a, MULTIPLIERS[0]), product(c, MULTIPLIERS[1]));
        [a, b, c, d] = [other_high ^ b ^ left, other_low, high ^ d ^ right, low];
        (left, right) = (left.wrapping_add(WEYL[0]), right.wrapping_add(WEYL[1]));
    }
    [a, b, c, d]
}

/// Returns the high and the low word of a product.
fn product(a: u64, b: u64) -> (u64, u64) {
    let product = u128::from(a) * u128::from(b);
    ((product >> 64) as u64, product as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The known answers of Random123, in its file `tests/kat_vectors`.
    #[test]
    fn known_answers() {
        assert_eq!(
            philox4x64([0; 4], [0; 2]),
            [0x1655_4d9e_ca36_314c, 0xdb20_fe9d_672d_0fdc, 0xd7e7_72ce_e186_176b, 0x7e68_b68a_ec7b_a23b]
        );
        assert_eq!(
            philox4x64([u64::MAX; 4], [u64::MAX; 2]),
            [0x87b0_92c3_013f_e90b, 0x438c_3c67_be8d_0224, 0x9cc7_d7c6_9cd7_77b6, 0xa09c_aebf_594f_0ba0]
        );
        let of_pi = [0x243f_6a88_85a3_08d3, 0x1319_8a2e_0370_7344, 0xa409_3822_299f_31d0, 0x082e_fa98_ec4e_6c89];
        assert_eq!(
            philox4x64(of_pi, [0x4528_21e6_38d0_1377, 0xbe54_66cf_34e9_0c6c]),
            [0xa528_f454_03e6_1d95, 0x38c7_2dbd_566e_9788, 0xa5a1_610e_72fd_18b5, 0x57bd_43b5_e52b_7fe6]
        );
    }
}
