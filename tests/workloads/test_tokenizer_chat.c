/* Conversations written by hand (tests/data/tokenizer/chat_cases.json) against what the models' own
 * templates make of them (chat.json): made with npm @huggingface/jinja 0.5.13 by `scripts/tokenizer-peer.js
 * chat` from the templates that chat_template.h names; of gpt-oss's template without its tool branches. */
#include "harness/core/json.h"
#include "workloads/tokenizer/chat_template.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MESSAGES_MAX = 16 };

static json_t *read_json(const char *path) {
    json_t *v = NULL;
    struct err e = {0};
    cr_assert(zero(int, json_parse_file(path, &v, &e)), "%s", e.text);
    return v;
}

static size_t messages_of(const json_t *list, struct chat_message *m) {
    size_t n = json_array_size(list);
    cr_assert(le(sz, n, MESSAGES_MAX));
    for (size_t i = 0; i < n; i++) {
        const char *role = json_string_value(json_array_get(json_array_get(list, i), 0));
        const json_t *text = json_array_get(json_array_get(list, i), 1);
        m[i].role = *role == 's' ? CHAT_SYSTEM : *role == 'u' ? CHAT_USER : CHAT_ASSISTANT;
        m[i].text = (struct str){json_string_value(text), json_string_length(text)};
    }
    return n;
}

static const json_t *case_named(const json_t *plan, const char *name) {
    const json_t *cases = json_object_get(plan, "cases");
    for (size_t i = 0; i < json_array_size(cases); i++)
        if (!strcmp(json_string_value(json_object_get(json_array_get(cases, i), "name")), name))
            return json_array_get(cases, i);
    return NULL;
}

Test(workloads_tokenizer_chat, texts_are_those_of_the_models_templates) {
    json_t *plan = read_json("tests/data/tokenizer/chat_cases.json");
    json_t *golden = read_json("tests/data/tokenizer/chat.json"), *row;
    const char *date = json_string_value(json_object_get(plan, "date"));
    size_t i, rendered = 0;
    struct buf out;
    buf_init(&out, 1 << 16);
    cr_assert(eq(str, (char *)json_string_value(json_object_get(golden, "library")),
                 "npm @huggingface/jinja 0.5.13"));
    json_array_foreach(json_object_get(golden, "rows"), i, row) {
        const char *family = json_string_value(json_object_get(row, "family"));
        const char *name = json_string_value(json_object_get(row, "name"));
        const json_t *text = json_object_get(row, "text");
        bool generation = json_is_true(json_object_get(row, "generation"));
        const struct chat_template *t = NULL;
        struct chat_message m[MESSAGES_MAX];
        struct err e = {0};
        size_t n = messages_of(json_object_get(case_named(plan, name), "messages"), m);
        buf_clear(&out);
        cr_assert(zero(int, chat_template_named(family, &t, &e)), "%s", e.text);
        int rc = chat_template_render(t, m, n, generation ? CHAT_RENDER_GENERATION : 0, date, &out, &e);
        if (rc) { /* refused there too, or an order of roles whose text is told to be refused here */
            cr_expect(eq(int, rc, ASSAY_EINPUT));
            cr_expect(ne(ptr, strstr(e.text, family), NULL), "%s", e.text);
            cr_expect(not(text && !strstr(name, "system message")), "%s: %s: %s", family, name, e.text);
            continue;
        }
        rendered++;
        cr_expect(ne(ptr, (void *)text, NULL), "%s: %s: rendered, where the template refuses", family, name);
        /* JavaScript takes '' for false; Python, in which servers run Jinja, does not */
        if (!strcmp(family, "llama2") && !strcmp(name, "an empty system message"))
            cr_expect(eq(str, out.p, "<s>[INST] <<SYS>>\n\n<</SYS>>\n\nq [/INST]"));
        else if (text)
            cr_expect(eq(str, out.p, (char *)json_string_value(text)), "%s: %s", family, name);
    }
    cr_assert(ge(sz, rendered, 300), "%zu", rendered);
    buf_release(&out);
    json_decref(golden);
    json_decref(plan);
}

Test(workloads_tokenizer_chat, every_family_is_in_the_goldens_and_sorted_by_name) {
    json_t *golden = read_json("tests/data/tokenizer/chat.json"), *row;
    const char *name;
    for (size_t i = 0; (name = chat_template_name_at(i)); i++) {
        bool there = false;
        size_t k;
        json_array_foreach(json_object_get(golden, "rows"), k, row)
            there |= !strcmp(json_string_value(json_object_get(row, "family")), name);
        cr_assert(there, "%s", name);
        if (i)
            cr_assert(lt(int, strcmp(chat_template_name_at(i - 1), name), 0), "%s", name);
    }
    json_decref(golden);
}

/* Recognised by digest: this is the text of Mixtral's, by its pieces so as to copy none. */
static const char mixtral[] =
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}{% else %}"
    "{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}";

static void write_file(const char *path, const char *text) {
    FILE *f = fopen(path, "w");
    cr_assert(ne(ptr, f, NULL));
    fputs(text, f);
    fclose(f);
}

Test(workloads_tokenizer_chat, found_beside_a_tokenizer_and_recognised_or_refused) {
    char dir[] = "/tmp/assay-chat-XXXXXX", path[64], tokenizer[64];
    const struct chat_template *t = NULL;
    struct err e = {0};
    cr_assert(ne(ptr, mkdtemp(dir), NULL));
    snprintf(tokenizer, sizeof tokenizer, "%s/tokenizer.json", dir);
    write_file(tokenizer, "{}");
    cr_assert(zero(int, chat_template_load(dir, &t, &e)), "%s", e.text);
    cr_assert(eq(ptr, (void *)t, NULL)); /* there is none */

    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    json_t *config = json_pack("{s:s}", "chat_template", mixtral);
    cr_assert(zero(int, json_dump_file(config, path, 0)));
    cr_assert(zero(int, chat_template_load(tokenizer, &t, &e)), "%s", e.text);
    cr_assert(eq(str, (char *)chat_template_name(t), "mixtral"));
    char *whole = json_dumps(config, 0), many[2 * sizeof mixtral]; /* a number that published files have */
    snprintf(many, sizeof many, "{\"model_max_length\":1000000000000000019884624838656,%s", whole + 1);
    free(whole);
    write_file(path, many);
    cr_assert(zero(int, chat_template_load(dir, &t, &e)), "%s", e.text);
    cr_assert(eq(str, (char *)chat_template_name(t), "mixtral"));
    write_file(path, "{\"chat_template\":");
    cr_assert(eq(int, chat_template_load(dir, &t, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "tokenizer_config.json:1:"), NULL), "%s", e.text);
    json_object_set_new(config, "chat_template",
                        json_pack("[{s:s,s:s},{s:s,s:s}]", "name", "tool_use", "template", "{{ x }}", "name",
                                  "default", "template", mixtral));
    cr_assert(zero(int, json_dump_file(config, path, 0)));
    cr_assert(zero(int, chat_template_load(path, &t, &e)), "%s", e.text);
    cr_assert(eq(str, (char *)chat_template_name(t), "mixtral"));

    json_object_set_new(config, "chat_template", json_string("{% for m in messages %}{{ m }}{% endfor %}"));
    cr_assert(zero(int, json_dump_file(config, path, 0)));
    cr_assert(eq(int, chat_template_load(dir, &t, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "tokenizer_config.json: at /chat_template: expected the chat template of "
                                     "deepseek-r1, deepseek-v3, gemma3, gpt-oss, llama2, llama3, llama3.1, "
                                     "mixtral, qwen2.5, qwen3, found another, with sha256 "), NULL), "%s", e.text);
    json_object_set_new(config, "chat_template", json_integer(3));
    cr_assert(zero(int, json_dump_file(config, path, 0)));
    cr_assert(eq(int, chat_template_load(dir, &t, &e), ASSAY_EINPUT));
    cr_assert(ne(ptr, strstr(e.text, "expected a string, or a list with one named default; found 3"), NULL), "%s",
              e.text);
    json_decref(config);

    char jinja[64], more[sizeof mixtral + 2]; /* the file of its own comes first; its last line end is none */
    snprintf(jinja, sizeof jinja, "%s/chat_template.jinja", dir);
    snprintf(more, sizeof more, "%s\n", mixtral);
    write_file(jinja, more);
    cr_assert(zero(int, chat_template_load(dir, &t, &e)), "%s", e.text);
    cr_assert(eq(str, (char *)chat_template_name(t), "mixtral"));
    unlink(jinja);
    unlink(path);
    unlink(tokenizer);
    rmdir(dir);
}

Test(workloads_tokenizer_chat, unknown_names_and_no_messages_are_errors) {
    const struct chat_template *t = NULL;
    struct err e = {0};
    struct buf out;
    buf_init(&out, 1024);
    cr_assert(eq(int, chat_template_named("gpt-2", &t, &e), ASSAY_EUSAGE));
    cr_assert(ne(ptr, strstr(e.text, "'gpt-2'; there are deepseek-r1, "), NULL), "%s", e.text);
    cr_assert(zero(int, chat_template_named("qwen3", &t, &e)));
    cr_assert(eq(int, chat_template_render(t, NULL, 0, 0, "", &out, &e), ASSAY_EUSAGE));
    cr_assert(lt(int, chat_template_load("/nowhere/tokenizer.json", &t, &e), 0));
    buf_release(&out);
}
