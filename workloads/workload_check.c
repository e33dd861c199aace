/* What the members of a workload mean together: a table of contradictions, each with the place that
 * is wrong and the reason. Single members are checked where they are read. */
#include "workloads/trace.h"
#include "workloads/workload_internal.h"

#include <stddef.h>

struct facts {
    const struct workload *w;
    const struct definition *d;
};

static bool training(const struct facts *f) {
    return f->w->kind == WORKLOAD_TRAINING;
}
static bool lengths(const struct facts *f) {
    return f->d->isl || f->d->osl;
}
static bool open_ended(const struct facts *f) {
    return !f->d->requests && !f->w->duration_ns && !f->d->trace && !f->w->sessions;
}
static bool ratio(const struct facts *f) {
    return (f->d->isl && f->w->isl.kind == DIST_RANGE_RATIO) ||
           (f->d->osl && f->w->osl.kind == DIST_RANGE_RATIO);
}
static bool timed_trace(const struct facts *f) {
    return trace_format_info(f->w->trace_format)->resolution_ns != 0;
}
static bool pattern_is(const struct facts *f, enum pattern_kind k) {
    return f->d->pattern && f->w->pattern.kind == k;
}

/* One function a contradiction: true when the workload is wrong. */
#define RULE(name, expression)                                                                     \
    static bool name(const struct facts *f) {                                                      \
        return expression;                                                                         \
    }
RULE(training_absent, training(f) && !f->d->training)
RULE(training_extra, !training(f) && f->d->training)
RULE(training_model, training(f) && !f->d->model)
RULE(training_isl, training(f) && f->d->isl)
RULE(training_osl, training(f) && f->d->osl)
RULE(training_trace, training(f) && f->d->trace)
RULE(training_sessions, training(f) && f->d->sessions)
RULE(training_pattern, training(f) && f->d->pattern)
RULE(training_requests, training(f) && f->d->requests)
RULE(training_duration, training(f) && f->w->duration_ns)
RULE(training_limits, training(f) && f->d->limits)
RULE(training_prefix, training(f) && f->d->shared_prefix)
RULE(trace_prefix, f->d->trace && f->d->shared_prefix)
RULE(pattern_absent, !training(f) && !f->d->pattern)
RULE(trace_isl, f->d->trace && f->d->isl)
RULE(trace_osl, f->d->trace && f->d->osl)
RULE(trace_sessions, f->d->trace && f->d->sessions)
RULE(isl_absent, !training(f) && !f->d->trace && !f->d->isl)
RULE(osl_absent, !training(f) && !f->d->trace && !f->d->osl)
RULE(pattern_trace, pattern_is(f, PATTERN_TRACE) && !f->d->trace)
RULE(pattern_untimed, pattern_is(f, PATTERN_TRACE) &&f->d->trace && !timed_trace(f))
RULE(sessions_offline, workload_has_sessions(f->w) && pattern_is(f, PATTERN_OFFLINE))
RULE(plays_single, f->d->trace && !workload_has_sessions(f->w) && f->w->trace_plays != 1)
RULE(delay_single, f->d->trace && !workload_has_sessions(f->w) && f->w->trace_max_delay_ns >= 0)
RULE(context_single, f->d->trace && !workload_has_sessions(f->w) && f->w->trace_max_context)
RULE(plays_endless,
     f->d->trace && f->w->trace_plays == 0 && !f->d->requests && f->w->duration_ns == 0)
RULE(trace_context_model,
     f->d->trace && f->w->has_model && f->w->trace_max_context > f->w->model.max_context)
RULE(agentic_absent, f->w->kind == WORKLOAD_AGENTIC && !f->d->sessions && !f->d->trace)
RULE(no_end, !training(f) && open_ended(f))
RULE(offline_endless, pattern_is(f, PATTERN_OFFLINE) && !f->d->requests && !f->d->trace)
RULE(ratio_sessions, ratio(f) && f->d->sessions)
RULE(ratio_requests, lengths(f) && ratio(f) && !f->d->requests)
RULE(ratio_seed, ratio(f) && f->w->seed > UINT32_MAX)
RULE(context_model,
     f->w->has_sessions && f->w->has_model && f->w->max_context > f->w->model.max_context)
#undef RULE

// clang-format off
static const struct {
    bool (*wrong)(const struct facts *f);
    const char *pointer, *text;
} rules[] = {
    {training_absent,   "/training", "expected an object with global_batch, seq_len and steps, because kind is training; found nothing"},
    {training_extra,    "/training", "expected no such member, because kind is not training"},
    {training_model,    "/model",    "expected a model, because a training step is one of a model; found nothing"},
    {training_isl,      "/isl",      "expected no such member, because kind is training (its sequences have training.seq_len tokens)"},
    {training_osl,      "/osl",      "expected no such member, because kind is training"},
    {training_trace,    "/trace",    "expected no such member, because kind is training"},
    {training_sessions, "/sessions", "expected no such member, because kind is training"},
    {training_pattern,  "/pattern",  "expected no such member, because training steps follow each other"},
    {training_requests, "/requests", "expected no such member, because kind is training (it has training.steps)"},
    {training_duration, "/duration", "expected no such member, because kind is training (it has training.steps)"},
    {training_limits,   "/limits",   "expected no such member, because latency limits are of requests and kind is training"},
    {training_prefix,   "/shared_prefix", "expected no such member, because prompts are of requests and kind is training"},
    {trace_prefix,      "/shared_prefix", "expected no such member beside trace, which has its own prompts"},
    {pattern_absent,    "/pattern",  "expected a load pattern (such as \"concurrency:64\"), found nothing (the member is required)"},
    {trace_isl,         "/isl",      "expected no such member beside trace, which has its own lengths"},
    {trace_osl,         "/osl",      "expected no such member beside trace, which has its own lengths"},
    {trace_sessions,    "/sessions", "expected no such member beside trace, which has its own requests"},
    {isl_absent,        "/isl",      "expected input lengths or a trace, found nothing"},
    {osl_absent,        "/osl",      "expected output lengths or a trace, found nothing"},
    {pattern_trace,     "/pattern",  "expected another pattern, because there is no trace whose times it could follow"},
    {pattern_untimed,   "/pattern",  "expected another pattern, because this format of traces has no times"},
    {sessions_offline,  "/pattern",  "expected a pattern that waits for answers or times, because sessions are given and 'offline' issues all requests at once"},
    {plays_single,      "/trace/plays", "expected no such member, because this format of traces has no sessions"},
    {delay_single,      "/trace/max_delay", "expected no such member, because this format of traces has no sessions"},
    {context_single,    "/trace/max_context", "expected no such member, because this format of traces has no sessions"},
    {plays_endless,     "/trace/plays", "expected a number of plays, requests or a duration, so that the run ends; found 0 plays, which is without end"},
    {trace_context_model, "/trace/max_context", "expected at most the model's max_position_embeddings"},
    {agentic_absent,    "/sessions", "expected sessions or a trace, because kind is agentic; found nothing"},
    {offline_endless,   "/requests", "expected a number of requests, because 'offline' issues all of them at time 0; found nothing"},
    {ratio_sessions,    "/isl",      "expected another kind than range_ratio beside sessions: its draws are of a list of single requests"},
    {ratio_requests,    "/requests", "expected a number of requests, because range_ratio draws all input lengths before the output lengths; found nothing"},
    {no_end,            "/requests", "expected requests, duration, trace or sessions.count, so that the run ends; found nothing"},
    {ratio_seed,        "/seed",     "expected at most 4294967295, the seeds of range_ratio's generator"},
    {context_model,     "/sessions/max_context", "expected at most the model's max_position_embeddings"},
};
// clang-format on

int workload_check(const struct workload *w, const struct definition *d, const char *label,
                   struct err *e) {
    struct facts f = {w, d};
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (rules[i].wrong(&f))
            return err_set(e, ASSAY_EINPUT, "%s: at %s: %s", label, rules[i].pointer,
                           rules[i].text);
    return 0;
}
