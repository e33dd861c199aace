/* tokenizer.json to tables. */
#include "workloads/tokenizer/tokenizer_internal.h"

#include "harness/core/json.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Tables are as long as the highest id: a small file must not ask for gigabytes. */
enum { HOLES_PER_TOKEN = 16, HOLES_SPARE = 65536 };

static int nomem(struct err *e) {
    return err_set(e, ASSAY_ENOMEM, "a tokenizer: out of memory");
}

/* The printable stand-ins of byte-level vocabularies: 188 bytes stand for themselves, the others
 * for U+0100 onwards in order. */
static bool plain_byte(int b) {
    return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
}

int byte_of_char(uint32_t c) {
    if (c < 256)
        return plain_byte((int)c) ? (int)c : -1;
    for (int b = 0, k = 0; b < 256 && c < 256 + 68; b++)
        if (!plain_byte(b) && (uint32_t)(256 + k++) == c)
            return b;
    return -1;
}

static bool raw_bytes(struct tokenizer *t, uint32_t id, char *out, const int16_t table[512]) {
    const uint8_t *p = (const uint8_t *)t->text[id].p, *end = p + t->text[id].n;
    size_t n = 0;
    while (p < end) {
        uint32_t c = utf8_next(&p);
        if (c >= 512 || table[c] < 0)
            return false;
        out[n++] = (char)table[c];
    }
    t->bytes[id] = (struct str){out, n};
    return true;
}

static int put_text(struct tokenizer *t, uint32_t id, const char *p, size_t n) {
    char *copy = arena_strndup(&t->arena, p, n);
    t->text[id] = (struct str){copy, n};
    return copy ? 0 : ASSAY_ENOMEM;
}

static int load_vocab(struct tokenizer *t, const json_t *vocab, const json_t *added,
                      const char *name, struct err *e) {
    const char *token;
    json_t *v;
    int64_t highest = -1;
    if (!json_is_object(vocab))
        return err_set(e, ASSAY_EINPUT, "%s: at /model/vocab: expected an object, found %s", name,
                       json_kind(vocab));
    json_object_foreach((json_t *)(uintptr_t)vocab, token, v) {
        int64_t id = json_integer_value(v);
        if (!json_is_integer(v) || id < 0 || id > ID_MAX) {
            char found[64];
            json_excerpt(v, found, sizeof found);
            return err_set(e, ASSAY_EINPUT,
                           "%s: at /model/vocab: '%.40s': expected an id from 0 to %d, found %s",
                           name, token, (int)ID_MAX, found);
        }
        highest = id > highest ? id : highest;
    }
    if (highest >= (int64_t)(HOLES_PER_TOKEN * json_object_size(vocab)) + HOLES_SPARE)
        return err_set(e, ASSAY_EINPUT,
                       "%s: at /model/vocab: expected ids without wide gaps, found %lld with %zu "
                       "tokens",
                       name, (long long)highest, json_object_size(vocab));
    size_t room = (size_t)(highest + 1) + json_object_size(vocab) + json_array_size(added) + 2;
    t->text = arena_alloc(&t->arena, room, sizeof *t->text);
    t->bytes = arena_alloc(&t->arena, room, sizeof *t->bytes);
    t->special = arena_alloc(&t->arena, room, sizeof *t->special);
    if (!t->text || !t->bytes || !t->special || vocab_init(&t->by_text, &t->arena, room) ||
        vocab_init(&t->by_bytes, &t->arena, room))
        return nomem(e);
    t->nids = (uint32_t)(highest + 1);
    t->model_vocab = (uint32_t)json_object_size(vocab);
    json_object_foreach((json_t *)(uintptr_t)vocab, token, v) {
        uint32_t id = (uint32_t)json_integer_value(v);
        if (t->text[id].p)
            return err_set(e, ASSAY_EINPUT, "%s: at /model/vocab: id %u stands for two tokens",
                           name, id);
        if (put_text(t, id, token, strlen(token)))
            return nomem(e);
        vocab_put(&t->by_text, t->text, id);
    }
    int16_t table[512];
    for (uint32_t c = 0; c < 512; c++)
        table[c] = (int16_t)byte_of_char(c);
    for (uint32_t id = 0; id < t->nids; id++) {
        if (!t->text[id].p)
            continue;
        if (!t->byte_level)
            t->bytes[id] = t->text[id];
        else {
            char *raw = arena_alloc(&t->arena, t->text[id].n + 1, 1);
            if (!raw)
                return nomem(e);
            if (!raw_bytes(t, id, raw, table)) /* no piece of text can ever be it */
                continue;
        }
        vocab_put(&t->by_bytes, t->bytes, id);
    }
    for (int b = 0; b < 256; b++) {
        char c = (char)b, code[8];
        t->byte_id[b] =
            t->byte_level || b < 128 ? vocab_get(&t->by_bytes, t->bytes, &c, 1) : ID_NONE;
        snprintf(code, sizeof code, "<0x%02X>", b);
        t->fallback_id[b] = vocab_get(&t->by_text, t->text, code, 6);
    }
    return 0;
}

static uint32_t last_char(struct str s) {
    const uint8_t *p = (const uint8_t *)s.p + s.n - 1;
    while ((*p & 0xC0) == 0x80)
        p--;
    return utf8_next(&p);
}

static void join_put(struct tokenizer *t, uint32_t a, uint32_t b) {
    if (a < 128 && b < 128)
        t->ascii_joins[a][b] = 1;
    uint64_t key = ((uint64_t)a << 32 | b) + 1, h = key * UINT64_C(0x9E3779B97F4A7C15);
    size_t i = (h ^ h >> 32) & t->joins_mask;
    while (t->joins[i] && t->joins[i] != key)
        i = (i + 1) & t->joins_mask;
    t->joins[i] = key;
}

static int load_merges(struct tokenizer *t, const json_t *merges, const char *name, struct err *e) {
    if (!json_is_array(merges))
        return err_set(e, ASSAY_EINPUT, "%s: at /model/merges: expected an array, found %s", name,
                       json_kind(merges));
    size_t n = json_array_size(merges), slots = 16, rank = 0, i;
    while (slots < 2 * n)
        slots *= 2;
    t->merges = arena_alloc(&t->arena, slots, sizeof *t->merges);
    t->joins = arena_alloc(&t->arena, slots, sizeof *t->joins);
    if (!t->merges || !t->joins)
        return nomem(e);
    t->merges_mask = t->joins_mask = slots - 1;
    for (i = 0; i < slots; i++)
        t->merges[i].pair = UINT64_MAX;
    bool complete = t->byte_fallback;
    for (int b = 0; b < 256; b++)
        complete &= t->fallback_id[b] != ID_NONE;
    t->seams =
        !t->byte_level && !t->ignore_merges && (complete || (t->unk != ID_NONE && !t->fuse_unk));
    struct buf whole;
    buf_init(&whole, 1 << 20);
    json_t *m;
    int rc = 0;
    json_array_foreach(merges, i, m) {
        struct str a = {0}, b = {0};
        if (json_is_string(m)) {
            const char *s = json_string_value(m), *space = strchr(s, ' ');
            size_t len = json_string_length(m);
            if (!strncmp(s, "#version", 8))
                continue;
            if (space && !strchr(space + 1, ' '))
                a = (struct str){s, (size_t)(space - s)},
                b = (struct str){space + 1, len - a.n - 1};
        } else if (json_array_size(m) == 2) {
            const json_t *x = json_array_get(m, 0), *y = json_array_get(m, 1);
            if (json_is_string(x) && json_is_string(y))
                a = (struct str){json_string_value(x), json_string_length(x)},
                b = (struct str){json_string_value(y), json_string_length(y)};
        }
        if (!a.n || !b.n) {
            char found[64];
            json_excerpt(m, found, sizeof found);
            rc = err_set(e, ASSAY_EINPUT, "%s: at /model/merges/%zu: expected two tokens, found %s",
                         name, i, found);
            break;
        }
        buf_clear(&whole);
        buf_put(&whole, a.p, a.n);
        buf_put(&whole, b.p, b.n);
        uint32_t left = vocab_get(&t->by_text, t->text, a.p, a.n);
        uint32_t right = vocab_get(&t->by_text, t->text, b.p, b.n);
        uint32_t to = whole.failed ? ID_NONE : vocab_get(&t->by_text, t->text, whole.p, whole.n);
        if (left == ID_NONE || right == ID_NONE || to == ID_NONE) {
            rc = err_set(
                e, ASSAY_EINPUT,
                "%s: at /model/merges/%zu: '%.40s' and '%.40s': a token, or what they make, "
                "is not in the vocabulary",
                name, i, a.p, b.p);
            break;
        }
        uint64_t pair = (uint64_t)left << 32 | right, h = pair * UINT64_C(0x9E3779B97F4A7C15);
        size_t k = (h ^ h >> 32) & t->merges_mask;
        while (t->merges[k].pair != UINT64_MAX && t->merges[k].pair != pair)
            k = (k + 1) & t->merges_mask;
        t->merges[k] =
            (struct merge){pair, (uint32_t)rank++, to}; /* of equal pairs the last counts */
        const uint8_t *first = (const uint8_t *)t->text[right].p;
        join_put(t, last_char(t->text[left]), utf8_next(&first));
        for (int c = 0; c < 256; c++) /* symbols that are not made of the characters they spell */
            if (left == t->fallback_id[c] || right == t->fallback_id[c])
                t->seams = false;
        if (left == t->unk || right == t->unk)
            t->seams = false;
    }
    buf_release(&whole);
    return rc;
}

static int load_model(struct tokenizer *t, const json_t *m, const json_t *added, const char *name,
                      struct err *e) {
    const json_t *type = json_object_get(m, "type");
    char found[64];
    if (!json_is_object(m))
        return err_set(e, ASSAY_EINPUT, "%s: at /model: expected an object, found %s", name,
                       json_kind(m));
    json_excerpt(type, found, sizeof found);
    if (type ? !json_is_string(type) || strcmp(json_string_value(type), "BPE")
             : !json_object_get(m, "merges")) /* old files have no type */
        return err_set(e, ASSAY_EINPUT, "%s: at /model/type: expected \"BPE\", found %s", name,
                       found);
    static const char *const empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_object_get(m, empty[i]);
        json_excerpt(v, found, sizeof found);
        if (v && !json_is_null(v) && (!json_is_string(v) || json_string_length(v)))
            return err_set(e, ASSAY_EINPUT, "%s: at /model/%s: expected null or \"\", found %s",
                           name, empty[i], found);
    }
    const json_t *dropout = json_object_get(m, "dropout");
    json_excerpt(dropout, found, sizeof found);
    if (dropout && !json_is_null(dropout) &&
        (!json_is_number(dropout) || json_number_value(dropout) != 0))
        return err_set(e, ASSAY_EINPUT,
                       "%s: at /model/dropout: expected null, as ids at random cannot be counted, "
                       "found %s",
                       name, found);
    const struct {
        const char *key;
        bool *to;
    } flags[] = {{"ignore_merges", &t->ignore_merges},
                 {"byte_fallback", &t->byte_fallback},
                 {"fuse_unk", &t->fuse_unk}};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) {
        const json_t *v = json_object_get(m, flags[i].key);
        if (v && !json_is_boolean(v))
            return err_set(e, ASSAY_EINPUT, "%s: at /model/%s: expected a boolean, found %s", name,
                           flags[i].key, json_kind(v));
        *flags[i].to = json_is_true(v);
    }
    if (t->byte_level && t->byte_fallback)
        return err_set(e, ASSAY_EINPUT, "%s: at /model/byte_fallback: true beside ByteLevel", name);
    int rc = load_vocab(t, json_object_get(m, "vocab"), added, name, e);
    if (rc)
        return rc;
    const json_t *unk = json_object_get(m, "unk_token");
    t->unk = ID_NONE;
    if (unk && !json_is_null(unk) && !json_is_string(unk))
        return err_set(e, ASSAY_EINPUT, "%s: at /model/unk_token: expected a string, found %s",
                       name, json_kind(unk));
    if (json_is_string(unk)) {
        t->unk = vocab_get(&t->by_text, t->text, json_string_value(unk), json_string_length(unk));
        if (t->unk == ID_NONE)
            return err_set(e, ASSAY_EINPUT,
                           "%s: at /model/unk_token: '%.40s' is not in the vocabulary", name,
                           json_string_value(unk));
    }
    return load_merges(t, json_object_get(m, "merges"), name, e);
}

/* The library decodes a normalized added token as its normal text, and no longer knows it as
 * special then. */
static int show_as(struct tokenizer *t, uint32_t id, const char *p, size_t n) {
    if (t->shown == t->text) {
        t->shown = arena_alloc(&t->arena, t->nids, sizeof *t->shown);
        if (!t->shown)
            return ASSAY_ENOMEM;
        memcpy(t->shown, t->text, t->nids * sizeof *t->shown);
    }
    t->shown[id] = (struct str){arena_strndup(&t->arena, p, n), n};
    t->special[id] = false;
    return t->shown[id].p ? 0 : ASSAY_ENOMEM;
}

static int load_added(struct tokenizer *t, const json_t *list, const char *name, struct err *e) {
    size_t n = json_array_size(list), bytes = 0, i;
    json_t *v;
    t->added = arena_alloc(&t->arena, n + 1, sizeof *t->added);
    if (!t->added)
        return nomem(e);
    uint32_t next = t->model_vocab;
    struct tokenizer_work *w = tokenizer_work_new(t);
    if (!w)
        return nomem(e);
    int rc = 0;
    json_array_foreach(list, i, v) {
        const json_t *content = json_object_get(v, "content"), *id = json_object_get(v, "id");
        struct added *a = &t->added[t->nadded];
        if (!json_is_string(content) || !json_string_length(content) || !json_is_integer(id)) {
            rc =
                err_set(e, ASSAY_EINPUT,
                        "%s: at /added_tokens/%zu: expected content, a string, and id, an integer; "
                        "found %s and %s",
                        name, i, json_kind(content), json_kind(id));
            break;
        }
        a->content.n = json_string_length(content);
        a->content.p = arena_strndup(&t->arena, json_string_value(content), a->content.n);
        if (!a->content.p) {
            rc = nomem(e);
            break;
        }
        bool *const to[] = {&a->special, &a->lstrip, &a->rstrip, &a->single_word, &a->normalized};
        static const char *const keys[] = {"special", "lstrip", "rstrip", "single_word",
                                           "normalized"};
        for (size_t k = 0; k < 5 && !rc; k++) {
            const json_t *f = json_object_get(v, keys[k]);
            *to[k] = json_is_true(f);
            if (!json_is_boolean(f))
                rc = err_set(e, ASSAY_EINPUT,
                             "%s: at /added_tokens/%zu/%s: expected a boolean, found %s", name, i,
                             keys[k], json_kind(f));
        }
        if (rc)
            break;
        a->id = vocab_get(&t->by_text, t->text, a->content.p, a->content.n);
        bool again = a->id != ID_NONE && a->id >= t->model_vocab;
        if (a->id == ID_NONE)
            a->id = next++;
        if ((json_int_t)a->id != json_integer_value(id) || again) {
            rc = err_set(e, ASSAY_EINPUT,
                         "%s: at /added_tokens/%zu: '%.40s' has id %lld, but its place gives %u",
                         name, i, a->content.p, (long long)json_integer_value(id), a->id);
            break;
        }
        if (!t->text[a->id].p) {
            t->text[a->id] = a->content;
            vocab_put(&t->by_text, t->text, a->id);
        }
        if (a->id >= t->nids)
            t->nids = a->id + 1;
        t->special[a->id] = a->special;
        bytes += 4 * a->content.n + 256;
        t->nadded++;
    }
    if (!rc &&
        (trie_init(&t->raw, &t->arena, bytes) || trie_init(&t->normalized, &t->arena, bytes)))
        rc = nomem(e);
    t->shown = t->text;
    for (int pass = 0; pass < 2 && !rc; pass++) /* special ones come first */
        for (i = 0; i < t->nadded && !rc; i++) {
            const struct added *a = &t->added[i];
            if (a->special != !pass)
                continue;
            const char *p = a->content.p;
            size_t len = a->content.n;
            if (a->normalized)
                normalize_piece(w, &p, &len);
            if (len > 4 * a->content.n + 255)
                rc = err_set(e, ASSAY_EINPUT, "%s: at /added_tokens/%zu: grows when normalised",
                             name, i);
            else if ((len != a->content.n || memcmp(p, a->content.p, len)) &&
                     show_as(t, a->id, p, len))
                rc = nomem(e);
            else
                trie_put(a->normalized ? &t->normalized : &t->raw, p, len, (uint32_t)i);
        }
    tokenizer_work_free(w);
    return rc;
}

static void collect_facts(struct tokenizer *t, const json_t *root) {
    static const char *const parts[] = {"normalizer", "pre_tokenizer", "post_processor", "decoder"};
    json_t *f = t->facts;
    json_object_set_new(f, "kind", json_string(t->byte_level ? "byte-level BPE" : "character BPE"));
    json_object_set_new(f, "vocabulary", json_integer(t->model_vocab));
    json_object_set_new(f, "added_tokens", json_integer((json_int_t)t->nadded));
    json_object_set_new(f, "highest_id", json_integer((json_int_t)t->nids - 1));
    json_object_set_new(f, "merges",
                        json_integer((json_int_t)json_array_size(
                            json_object_get(json_object_get(root, "model"), "merges"))));
    json_object_set_new(f, "byte_fallback", json_boolean(t->byte_fallback));
    json_object_set_new(f, "ignore_merges", json_boolean(t->ignore_merges));
    for (size_t i = 0; i < 4; i++) {
        const json_t *v = json_object_get(root, parts[i]);
        const char *type = json_string_value(json_object_get(v, "type"));
        json_object_set_new(f, parts[i], json_string(type ? type : "none"));
    }
    json_object_set_new(f, "sha256", json_string(t->sha256));
}

/* What stands around the components, and would change counts or ids if it were passed over. */
static int check_top(const json_t *root, const char *name, struct err *e) {
    static const char *const unset[] = {"truncation", "padding"};
    char found[64];
    if (!json_is_object(root))
        return err_set(e, ASSAY_EINPUT, "%s: at /: expected an object, found %s", name,
                       json_kind(root));
    const json_t *version = json_object_get(root, "version");
    if (version && (!json_is_string(version) || strcmp(json_string_value(version), "1.0"))) {
        json_excerpt(version, found, sizeof found);
        return err_set(e, ASSAY_EINPUT, "%s: at /version: expected \"1.0\", found %s", name, found);
    }
    for (size_t i = 0; i < 2; i++) {
        const json_t *v = json_object_get(root, unset[i]);
        json_excerpt(v, found, sizeof found);
        if (v && !json_is_null(v))
            return err_set(e, ASSAY_EINPUT,
                           "%s: at /%s: expected null, as it would change counts, found %s", name,
                           unset[i], found);
    }
    const json_t *added = json_object_get(root, "added_tokens");
    if (added && !json_is_array(added))
        return err_set(e, ASSAY_EINPUT, "%s: at /added_tokens: expected an array, found %s", name,
                       json_kind(added));
    return 0;
}

int tokenizer_parse_with(const char *json, size_t n, const char *name, bool general,
                         struct tokenizer **out, struct err *e) {
    json_t *root = NULL;
    *out = NULL;
    int rc = json_parse(json, n, name, &root, e);
    if (rc)
        return rc;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t) {
        json_decref(root);
        return nomem(e);
    }
    t->general = general;
    t->facts = json_object();
    t->classes = unicode_classes();
    unsigned char digest[32];
    if (!t->facts || !t->classes || !EVP_Digest(json, n, digest, NULL, EVP_sha256(), NULL)) {
        rc = nomem(e);
        goto out;
    }
    for (int i = 0; i < 32; i++)
        snprintf(t->sha256 + 2 * i, 3, "%02x", digest[i]);
    const json_t *added = json_object_get(root, "added_tokens");
    if ((rc = check_top(root, name, e)))
        goto out;
    if ((rc = load_normalizer(t, json_object_get(root, "normalizer"), name, e)) ||
        (rc = load_pre_tokenizer(t, json_object_get(root, "pre_tokenizer"), name, e)) ||
        (rc = load_decoder(t, json_object_get(root, "decoder"), name, e)) ||
        (rc = load_post_processor(t, json_object_get(root, "post_processor"), name, e)) ||
        (rc = load_model(t, json_object_get(root, "model"), added, name, e)) ||
        (rc = load_added(t, added, name, e)))
        goto out;
    collect_facts(t, root);
    *out = t;
    t = NULL;
out:
    tokenizer_free(t);
    json_decref(root);
    return rc;
}

int tokenizer_parse(const char *json, size_t n, const char *name, struct tokenizer **out,
                    struct err *e) {
    return tokenizer_parse_with(json, n, name, false, out, e);
}

int tokenizer_load(const char *path, struct tokenizer **out, struct err *e) {
    struct stat st;
    char inside[4096];
    *out = NULL;
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        int n = snprintf(inside, sizeof inside, "%s/tokenizer.json", path);
        if (n < 0 || (size_t)n >= sizeof inside)
            return err_set(e, ASSAY_EUSAGE, "a path of more than %zu bytes", sizeof inside);
        path = inside;
    }
    struct buf b;
    int rc = buf_read_file(&b, path, JSON_FILE_MAX_BYTES, e);
    if (!rc)
        rc = tokenizer_parse(b.p ? b.p : "", b.n, path, out, e);
    buf_release(&b);
    return rc;
}

void tokenizer_free(struct tokenizer *t) {
    if (!t)
        return;
    for (int i = 0; i < t->nnorms; i++)
        norm_free(t->norms[i].form);
    for (int i = 0; i < t->ncodes; i++)
        pcre2_code_free(t->codes[i]);
    json_decref(t->facts);
    arena_release(&t->arena);
    free(t);
}

size_t tokenizer_vocab_size(const struct tokenizer *t) {
    return t->nids;
}

const char *tokenizer_sha256(const struct tokenizer *t) {
    return t->sha256;
}

bool tokenizer_id(const struct tokenizer *t, const char *token, uint32_t *id) {
    *id = vocab_get(&t->by_text, t->text, token, strlen(token));
    return *id != ID_NONE;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id) {
    return id < t->nids && t->special[id];
}

json_t *tokenizer_facts(const struct tokenizer *t) {
    return json_deep_copy(t->facts);
}
