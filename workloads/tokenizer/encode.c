/* Text to ids. */
#include "workloads/tokenizer/tokenizer.h"

#include "harness/core/json.h"

#include <stdlib.h>

int tokenizer_load(const char *path, struct tokenizer **out, struct err *e) {
    *out = NULL;
    return err_set(e, ASSAY_EINPUT, "%s: this build reads no tokenizers", path);
}

int tokenizer_parse(const char *json, size_t n, const char *name, struct tokenizer **out,
                    struct err *e) {
    (void)json, (void)n;
    return tokenizer_load(name, out, e);
}

void tokenizer_free(struct tokenizer *t) {
    (void)t;
}

size_t tokenizer_vocab_size(const struct tokenizer *t) {
    (void)t;
    return 0;
}

const char *tokenizer_sha256(const struct tokenizer *t) {
    (void)t;
    return "";
}

bool tokenizer_id(const struct tokenizer *t, const char *token, uint32_t *id) {
    (void)t, (void)token, (void)id;
    return false;
}

bool tokenizer_is_special(const struct tokenizer *t, uint32_t id) {
    (void)t, (void)id;
    return false;
}

json_t *tokenizer_facts(const struct tokenizer *t) {
    (void)t;
    return json_object();
}

struct tokenizer_work *tokenizer_work_new(const struct tokenizer *t) {
    (void)t;
    return NULL;
}

void tokenizer_work_free(struct tokenizer_work *w) {
    (void)w;
}

int tokenizer_encode(const struct tokenizer *t, struct tokenizer_work *w, const char *text, size_t n,
                     unsigned flags, uint32_t *ids, size_t cap, size_t *count, struct err *e) {
    (void)t, (void)w, (void)text, (void)n, (void)flags, (void)ids, (void)cap;
    *count = 0;
    return err_set(e, ASSAY_EINPUT, "this build reads no tokenizers");
}

int tokenizer_count(const struct tokenizer *t, struct tokenizer_work *w, const char *text, size_t n,
                    size_t *count, struct err *e) {
    return tokenizer_encode(t, w, text, n, 0, NULL, 0, count, e);
}

int tokenizer_decode(const struct tokenizer *t, const uint32_t *ids, size_t n, unsigned flags,
                     struct buf *out, struct err *e) {
    (void)t, (void)ids, (void)n, (void)flags, (void)out;
    return err_set(e, ASSAY_EINPUT, "this build reads no tokenizers");
}
