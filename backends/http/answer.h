/* The text of an answer, joined from the fragments of its events.
 *
 * Fragments are kept as they stand in the events, that is as insides of JSON strings with their
 * escapes: joining is a copy, and a pair of surrogates that the server cut between two events is
 * whole again. Decoding happens once, at the end of a request. Nothing here reads a clock. */
#ifndef BACKENDS_HTTP_ANSWER_H
#define BACKENDS_HTTP_ANSWER_H

#include "harness/core/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct answer {
    struct buf raw; /* fragments, one behind the other */
    bool lost;      /* some of the answer is missing: past the maximum, or told by answer_lose */
};

/* Storage is the caller's. first_bytes are allocated at once, so that the usual answer allocates
 * nothing while it is timed; never more than max_bytes. */
void answer_init(struct answer *a, size_t first_bytes, size_t max_bytes);
void answer_release(struct answer *a);
void answer_clear(struct answer *a); /* ready for the next request; keeps the memory */

/* p[0..n): the inside of a JSON string whose grammar has been checked, or a part of one. A fragment
 * that does not fit is left out whole, and all that follow with it. */
void answer_add(struct answer *a, const char *p, size_t n);
void answer_lose(struct answer *a); /* a fragment could not be had */

/* Appends to out the UTF-8 text that p[0..n) stands for. Lone surrogates, and bytes that are no
 * UTF-8, become U+FFFD (a maximal wrong part each, as the WHATWG's decoder does it); an escape that
 * is none stands for itself. Grows at most threefold. out: initialised by the caller, whose maximum
 * holds; errors are in out->failed. */
void answer_decode(const char *p, size_t n, struct buf *out);

/* Appends p[0..n) such that it may stand inside a JSON string of a request: escapes stay as they
 * are, but lone surrogates and bytes that are no UTF-8 become \ufffd. */
void answer_put_escaped(const char *p, size_t n, struct buf *out);

#endif
