/* The key scan against the tree: what the scan accepts as known means the same in the tree; what
 * the tree's parser accepts, the scan never calls malformed. A first byte 1 or 2, which no JSON begins
 * with, chooses another dialect than 0 for what follows it. */
#include "backends/http/scan.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* Spans are of the event; there are some, or a loss is told, where and only where it carries output. */
static void check_spans(const struct scan *c, const char *p, size_t n) {
    const unsigned text = SCAN_CONTENT | SCAN_REASONING | SCAN_REFUSAL;
    if (c->ntexts > SCAN_TEXTS_MAX || (c->ntexts && !(c->flags & (text | SCAN_TOOL_CALL))) ||
        (c->flags & text && !c->ntexts && !c->text_lost) || (c->flags & SCAN_TOOL_CALL && !c->text_lost))
        abort();
    for (unsigned i = 0; i < c->ntexts; i++)
        if (c->text[i].p <= p || c->text[i].n == 0 || c->text[i].n >= n || c->text[i].p + c->text[i].n >= p + n ||
            c->text[i].p[-1] != '"' || c->text[i].p[c->text[i].n] != '"')
            abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n) {
    enum scan_dialect d = SCAN_OPENAI;
    if (n && *p > 0 && *p < SCAN_DIALECTS) {
        d = *p++;
        n--;
    }
    char *copy = malloc(n ? n : 1); /* exact bounds */
    if (!copy)
        abort();
    memcpy(copy, p, n);
    struct scan fast, tree;
    enum scan_result r = scan_event(d, copy, n, &fast);
    json_error_t je;
    json_t *root = json_loadb(copy, n, JSON_ALLOW_NUL, &je);
    if (root && !memchr(p, 0, n)) { /* that parser passes over some NULs */
        if (r == SCAN_MALFORMED)
            abort();
        if (r == SCAN_OK) {
            check_spans(&fast, copy, n);
            if (!scan_dom(d, root, &tree) || fast.flags != tree.flags ||
                fast.token_ids != tree.token_ids || fast.prompt_tokens != tree.prompt_tokens ||
                fast.completion_tokens != tree.completion_tokens ||
                fast.cached_tokens != tree.cached_tokens ||
                fast.reasoning_tokens != tree.reasoning_tokens ||
                fast.written_tokens != tree.written_tokens)
                abort();
        }
    }
    /* What only the tree refuses: bytes that are no UTF-8, lone surrogates, NUL in a key. */
    json_decref(root);
    bool slow;
    (void)scan_any(d, copy, n, &fast, &slow);
    free(copy);
    return 0;
}
