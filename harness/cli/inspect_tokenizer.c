/* Facts of a tokenizer.json: its components, the chat template beside it, and the ids of a text. */
#include "harness/cli/inspect_internal.h"

#include "workloads/tokenizer/chat_template.h"
#include "workloads/tokenizer/prompt.h"
#include "workloads/tokenizer/tokenizer.h"

#include <stdlib.h>
#include <string.h>

static int put_facts(const struct tokenizer *t, json_t *facts, struct err *e) {
    json_t *own = tokenizer_facts(t), *value;
    const char *member;
    /* "kind" is the file's here; what sort of tokenizer it is, is its algorithm */
    json_t *algorithm = json_incref(json_object_get(own, "kind"));
    int bad = !own || json_object_set_new(facts, "algorithm", algorithm);
    json_object_del(own, "kind");
    json_object_foreach(own, member, value) {
        bad |= json_object_set(facts, member, value);
    }
    json_decref(own);
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}

/* A template that is not known is a fact here: the tokenizer is of use without it. */
static int put_chat(const char *path, json_t *facts, struct err *e) {
    const struct chat_template *chat = NULL;
    struct err why = {0};
    int bad;
    if (chat_template_load(path, &chat, &why))
        bad = json_object_set_new(facts, "chat_template", json_string("not known")) ||
              json_object_set_new(facts, "chat_template_error", json_string(why.text));
    else
        bad = json_object_set_new(facts, "chat_template",
                                  json_string(chat ? chat_template_name(chat) : "none"));
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}

/* Each id with the text it stands for; "tokens" are those of the text alone, "with_template" counts
 * what the post-processor adds. */
static int put_ids(const struct tokenizer *t, const char *text, json_t *facts, struct err *e) {
    size_t n = 0, around = 0, most = strlen(text) * 4 + 16;
    uint32_t *ids = calloc(most, sizeof *ids);
    struct tokenizer_work *w = tokenizer_work_new(t);
    json_t *list = json_array(), *pieces = json_array();
    struct buf piece;
    buf_init(&piece, 1 << 20);
    int rc = ids && w && list && pieces ? 0 : err_set(e, ASSAY_ENOMEM, "out of memory");
    if (!rc)
        rc = tokenizer_encode(t, w, text, strlen(text), TOKENIZER_ENCODE_TEMPLATE, NULL, 0, &around,
                              e);
    if (!rc)
        rc = tokenizer_encode(t, w, text, strlen(text), 0, ids, most, &n, e);
    if (!rc && n > most)
        rc = err_set(e, ASSAY_EINPUT, "a text of %zu tokens: at most %zu are listed", n, most);
    for (size_t i = 0; i < n && !rc; i++) {
        buf_clear(&piece);
        rc = tokenizer_decode(t, ids + i, 1, 0, &piece, e);
        if (!rc && (json_array_append_new(list, json_integer(ids[i])) ||
                    json_array_append_new(pieces, json_stringn(piece.n ? piece.p : "", piece.n))))
            rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    }
    if (!rc &&
        (json_object_set_new(facts, "tokens", json_integer((json_int_t)n)) ||
         json_object_set_new(facts, "tokens_with_template", json_integer((json_int_t)around)) ||
         json_object_set(facts, "ids", list) || json_object_set(facts, "pieces", pieces)))
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    json_decref(list);
    json_decref(pieces);
    tokenizer_work_free(w);
    buf_release(&piece);
    free(ids);
    return rc;
}

int inspect_tokenizer_text(const char *name, const char *text, json_t *facts, struct err *e) {
    struct tokenizer *t = NULL;
    int rc = tokenizer_load(name, &t, e);
    if (rc)
        return rc;
    struct prompt_maker *m = NULL;
    rc = put_facts(t, facts, e);
    if (!rc)
        rc = put_chat(name, facts, e);
    if (!rc)
        rc = prompt_maker_new(t, &m, e);
    if (!rc &&
        json_object_set_new(facts, "one_token_words", json_integer((json_int_t)prompt_nwords(m))))
        rc = err_set(e, ASSAY_ENOMEM, "out of memory");
    if (!rc && text)
        rc = put_ids(t, text, facts, e);
    prompt_maker_free(m);
    tokenizer_free(t);
    return rc;
}

int inspect_tokenizer(const char *name, json_t *facts, struct err *e) {
    return inspect_tokenizer_text(name, NULL, facts, e);
}
