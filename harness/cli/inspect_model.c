/* Facts of a model config: parameters, cache and arithmetic that follow from its shape. */
#include "harness/cli/inspect_internal.h"

#include "workloads/model.h"

int inspect_model(const char *name, json_t *facts, struct err *e) {
    enum { BF16_BYTES = 2 };
    struct model m;
    int rc = model_load(name, &m, e);
    if (rc)
        return rc;
    bool moe = m.experts > 0, mla = m.kv_lora_rank > 0, slides = m.sliding_window > 0;
    const struct {
        const char *member;
        int64_t value;
        bool shown;
    } rows[] = {
        {"parameters", model_parameters(&m), true},
        {"active_parameters", model_active_parameters(&m), moe},
        {"flops_per_token", 2 * model_matmul_parameters(&m), true}, /* without attention scores */
        {"weight_bytes_bf16", BF16_BYTES * model_parameters(&m), true},
        {"kv_bytes_per_token_bf16", model_kv_bytes_per_token(&m, BF16_BYTES), true},
        {"max_context", m.max_context, true},
        {"layers", m.layers, true},
        {"hidden", m.hidden, true},
        {"heads", m.heads, true},
        {"kv_heads", m.kv_heads, !mla},
        {"head_dim", m.head_dim, !mla},
        {"ffn", m.ffn, true},
        {"vocab", m.vocab, true},
        {"experts", m.experts, moe},
        {"experts_per_token", m.experts_per_token, moe},
        {"expert_ffn", m.expert_ffn, moe},
        {"shared_experts", m.shared_experts, moe},
        {"dense_layers", m.dense_layers, moe},
        {"q_lora_rank", m.q_lora_rank, mla},
        {"kv_lora_rank", m.kv_lora_rank, mla},
        {"qk_nope_head_dim", m.qk_nope_head_dim, mla},
        {"qk_rope_head_dim", m.qk_rope_head_dim, mla},
        {"v_head_dim", m.v_head_dim, mla},
        {"sliding_window", m.sliding_window, slides},
        {"full_attention_layers", model_full_attention_layers(&m), slides},
    };
    int bad = json_object_set_new(facts, "name", json_string(m.name));
    bad |= json_object_set_new(facts, "family", json_string(m.family));
    bad |= json_object_set_new(facts, "dtype", json_string(m.dtype));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].shown)
            bad |= json_object_set_new(facts, rows[i].member, json_integer(rows[i].value));
    return bad ? err_set(e, ASSAY_ENOMEM, "out of memory") : 0;
}
