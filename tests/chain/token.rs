//! A small ERC-20 token, assembled by hand, because a compiler would have to be downloaded.
//!
//! The storage slot of a balance is the holder's address itself. There are six decimals, the symbol is `TEST`, and
//! the deployer holds 1,000,000.000001 of it.

use alloy_primitives::{Address, U256, hex};
use serde_json::{Value, json};

pub fn runtime_code() -> Vec<u8> {
    let parts: [&[u8]; 10] = [
        // PUSH0 CALLDATALOAD PUSH1 e0 SHR: the first four bytes are the function selector.
        &hex!("5f3560e01c"),
        // DUP1 PUSH4 selector EQ PUSH1 place JUMPI, four times
        &hex!("806370a08231 14 6031 57"), // balanceOf(address)
        &hex!("8063313ce567 14 603c 57"), // decimals()
        &hex!("806395d89b41 14 6045 57"), // symbol()
        &hex!("8063a9059cbb 14 605e 57"), // transfer(address,uint256)
        // 2d: JUMPDEST PUSH0 PUSH0 REVERT
        &hex!("5b 5f5ffd"),
        // 31: JUMPDEST; the word at 4 is the holder: CALLDATALOAD SLOAD, and return it
        &hex!("5b 600435 54 5f52 60205ff3"),
        // 3c: JUMPDEST; return 6
        &hex!("5b 6006 5f52 60205ff3"),
        // 45: JUMPDEST; return a string: its offset, its length, its characters
        &hex!("5b 60205f52 6004602052 6354455354 60e01b 604052 60605ff3"),
        // 5e: JUMPDEST
        &hex!(
            "5b"
            "3354 602435" // the caller's balance; the amount
            "8181 11 602d 57" // amount exceeds balance: revert
            "80 91 03 33 55" // subtract it from the caller's balance
            "600435 80 54 82 01" // and add it to the receiver's
            "90 55"
            "60015f52 60205ff3"  // return true
        ),
    ];
    parts.concat()
}

/// Gives the supply to the sender and returns the code above.
pub fn init_code() -> Vec<u8> {
    let runtime = runtime_code();
    let length = u8::try_from(runtime.len()).unwrap();
    let mut code = Vec::new();
    // PUSH5 supply CALLER SSTORE
    code.extend(hex!("64e8d4a51001 33 55"));
    // PUSH1 length DUP1 PUSH1 17 PUSH0 CODECOPY PUSH0 RETURN; 17 is the length of this part
    code.extend([0x60, length]);
    code.extend(hex!("80 6011 5f 39 5f f3"));
    code.extend(runtime);
    code
}

/// A transaction that transfers this many of the smallest units. Its gas limit is set, because otherwise the node
/// would simulate it first and refuse one that fails.
pub fn transfer(from: Address, token: Address, to: Address, units: u64) -> Value {
    let mut data = hex!("a9059cbb").to_vec();
    data.extend(to.into_word());
    data.extend(U256::from(units).to_be_bytes::<32>());
    json!({ "from": from, "to": token, "data": hex::encode_prefixed(data), "gas": "0x186a0" })
}
