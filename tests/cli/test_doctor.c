/* `assay doctor` as people and scripts use it; what it finds is tested with its room. */
#include "tests/cli/child.h"

#include <stdio.h>
#include <string.h>

TestSuite(cli_doctor, .fini = child_home_remove);

Test(cli_doctor, report_is_one_object_or_a_page) {
    const struct child *c = assay("doctor --json");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    json_t *v = child_object(c);
    CHECK(json_is_object(json_object_get(v, "clock")));
    CHECK(json_is_array(json_object_get(v, "warnings")));
    CHECK(json_object_get(json_object_get(v, "client"), "limit"));
    json_decref(v);
    c = assay("doctor");
    cr_assert(eq(int, c->status, 0));
    CHECK(strstr(c->out, "clock") && strstr(c->out, "client") && strstr(c->out, "libraries"), "%s", c->out);
    CHECK(!strchr(c->out, '\033'), "an escape in a pipe");
    cr_assert(eq(int, assay("doctor now")->status, 2));
}

/* What it drafts is what --system reads. */
Test(cli_doctor, the_draft_is_accepted) {
    char path[300], args[500];
    const struct child *c = assay("doctor --system");
    cr_assert(eq(int, c->status, 0), "%s", c->err);
    json_decref(child_object(c));
    snprintf(path, sizeof path, "%s/system.json", child_home());
    FILE *f = fopen(path, "w");
    fputs(c->out, f);
    fclose(f);
    snprintf(args, sizeof args, "run chat-serving --backend null --requests 20 --system %s --json", path);
    c = assay(args);
    CHECK(c->status == 0 || c->status == 1, "%d: %s", c->status, c->err);
    json_t *v = child_object(c);
    /* the weaker of the two classes: nothing answered */
    cr_assert(eq(str, (char *)json_string_value(json_object_get(json_object_get(v, "backend"), "class")),
                 "none"));
    json_decref(v);
}
