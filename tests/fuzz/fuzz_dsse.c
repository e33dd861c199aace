/* Envelopes: what parses prints, and parses again to the same payload and signatures; no input
 * makes a signature of a key that did not sign it. */
#include "results/dsse.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(int ok) {
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    /* RFC 8032 test 1's public key. Its secret is public: the corpus holds one envelope it signed.
     */
    static const unsigned char raw[32] = {0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7,
                                          0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
                                          0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25,
                                          0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a};
    struct dsse a, b;
    if (dsse_parse((const char *)data, size, "fuzz", &a, NULL))
        return 0;
    struct buf text;
    buf_init(&text, (size_t)4 << 20);
    must(dsse_print(a.payload_type, a.payload.p, a.payload.n, a.sig, a.nsig, &text, NULL) == 0);
    must(dsse_parse(text.p, text.n, "fuzz", &b, NULL) == 0);
    must(strcmp(a.payload_type, b.payload_type) == 0 && a.nsig == b.nsig);
    must(a.payload.n == b.payload.n && memcmp(a.payload.p, b.payload.p, a.payload.n) == 0);
    must(memcmp(a.sig, b.sig, sizeof a.sig[0] * (size_t)a.nsig) == 0);
    struct public_key key;
    bool matched = false;
    int distinct = 0;
    must(public_key_from_raw(raw, &key, NULL) == 0);
    must(dsse_verify(&a, &key, 1, &matched, &distinct, NULL) == 0 && distinct == matched);
    if (matched)
        must(a.payload.n == 2 && memcmp(a.payload.p, "{}", 2) == 0);
    buf_release(&text);
    dsse_release(&a);
    dsse_release(&b);
    return 0;
}
