/* Shapes of the models that published measurements name: the shipped ones by their file, others
 * here. Sources: each model's Hugging Face config.json or paper; MaxText's configs/models, base.yml
 * and its rule for scaled models (get_individual_scales). A model that is not here is named as
 * unmodelled. */
#include "harness/run/validate_internal.h"

#include <stdlib.h>
#include <string.h>

/* Their names of models that ship. */
static const char *const shipped[][2] = {
    {"Llama-3.3-70B-Instruct", "llama3.3-70b"},
    {"Llama-3.1-70B-Instruct", "llama3.1-70b"},
    {"Llama3.1-70B", "llama3.1-70b"},
    {"llama3.1-70b", "llama3.1-70b"},
    {"llama3.1-405b", "llama3.1-405b"},
    {"Llama3.1-405B", "llama3.1-405b"},
    {"Llama-3.1-8B", "llama3.1-8b"},
    {"Llama-3.1-8B-Instruct", "llama3.1-8b"},
    {"Llama3.1-8B", "llama3.1-8b"},
    {"Llama-3-8B", "llama3.1-8b"},
    {"Llama-2-7b-chat", "llama2-7b"},
    {"Llama-2-7B", "llama2-7b"},
    {"LLaMA-7B", "llama2-7b"},
    {"Qwen3-32B", "qwen3-32b"},
    {"Qwen3-8B", "qwen3-8b"},
    {"Mixtral-8x7B", "mixtral-8x7b"},
    {"deepseek-v3", "deepseek-v3"},
    {"DeepSeek-V3", "deepseek-v3"},
    {"DeepSeek3-671B", "deepseek-v3"},
    {"gpt-oss-120b", "gpt-oss-120b"},
};

#define DENSE(l, h, q, kv, d, f, v)                                                                \
    .layers = l, .hidden = h, .heads = q, .kv_heads = kv, .head_dim = d, .ffn = f, .vocab = v,     \
    .max_context = 131072, .gated_ffn = true
#define EXPERTS(n, top, f) .experts = n, .experts_per_token = top, .expert_ffn = f
static const struct model others[] = {
    {.name = "Qwen3-30B-A3B",
     DENSE(48, 2048, 32, 4, 128, 6144, 151936),
     EXPERTS(128, 8, 768),
     .qk_norm = true},
    {.name = "qwen3-235b-a22b",
     DENSE(94, 4096, 64, 4, 128, 12288, 151936),
     EXPERTS(128, 8, 1536),
     .qk_norm = true},
    {.name = "Qwen3-Coder-480B-A35B-FP8",
     DENSE(62, 6144, 96, 8, 128, 8192, 151936),
     EXPERTS(160, 8, 2560),
     .qk_norm = true},
    {.name = "Qwen2.5-7B-Instruct", DENSE(28, 3584, 28, 4, 128, 18944, 152064), .qkv_bias = true},
    {.name = "MiMo-7B-RL", DENSE(36, 4096, 32, 8, 128, 11008, 151680), .qkv_bias = true},
    {.name = "GLM-4.5-Air",
     DENSE(46, 4096, 96, 8, 128, 10944, 151552),
     EXPERTS(128, 8, 1408),
     .shared_experts = 1,
     .shared_expert_ffn = 1408,
     .dense_layers = 1,
     .qkv_bias = true},
    {.name = "DeepSeek-V2-Lite",
     DENSE(27, 2048, 16, 16, 192, 10944, 102400),
     EXPERTS(64, 6, 1408),
     .shared_experts = 2,
     .shared_expert_ffn = 2816,
     .dense_layers = 1,
     .kv_lora_rank = 512,
     .qk_nope_head_dim = 128,
     .qk_rope_head_dim = 64,
     .v_head_dim = 128},
    {.name = "Gemma-2B", DENSE(18, 2048, 8, 1, 256, 16384, 256000), .tied_embeddings = true},
    {.name = "LLaMA-65B", DENSE(80, 8192, 64, 64, 128, 22016, 32000)},
    {.name = "Mistral-7B", DENSE(32, 4096, 32, 8, 128, 14336, 32000)},
    {.name = "Mixtral-8x22B", DENSE(56, 6144, 48, 8, 128, 16384, 32768), EXPERTS(8, 2, 16384)},
    {.name = "Gemma3-12B",
     DENSE(48, 3840, 16, 8, 256, 15360, 262144),
     .tied_embeddings = true,
     .sliding_window = 1024,
     .sliding_every = 6,
     .qk_norm = true},
    {.name = "Llama4-Scout-17B-16E",
     DENSE(48, 5120, 40, 8, 128, 16384, 202048),
     EXPERTS(16, 1, 8192),
     .shared_experts = 1,
     .shared_expert_ffn = 8192},
    {.name = "GPT3-175B",
     .layers = 96,
     .hidden = 12288,
     .heads = 96,
     .kv_heads = 96,
     .head_dim = 128,
     .ffn = 49152,
     .vocab = 50304,
     .max_context = 2048,
     .tied_embeddings = true},
    {.name = "GPT-3 175B",
     .layers = 96,
     .hidden = 12288,
     .heads = 96,
     .kv_heads = 96,
     .head_dim = 128,
     .ffn = 49152,
     .vocab = 50304,
     .max_context = 2048,
     .tied_embeddings = true},
    {.name = "GPT-J-6B",
     .layers = 28,
     .hidden = 4096,
     .heads = 16,
     .kv_heads = 16,
     .head_dim = 256,
     .ffn = 16384,
     .vocab = 50400,
     .max_context = 2048},
    {.name = "maxtext-22B",
     .layers = 48,
     .hidden = 6144,
     .heads = 24,
     .kv_heads = 24,
     .head_dim = 256,
     .ffn = 24576,
     .vocab = 32768,
     .max_context = 2048},
    {.name = "maxtext-52B",
     .layers = 32,
     .hidden = 12288,
     .heads = 32,
     .kv_heads = 32,
     .head_dim = 256,
     .ffn = 49152,
     .vocab = 32768,
     .max_context = 2048},
    {.name = "PaLM-540B",
     .layers = 118,
     .hidden = 18432,
     .heads = 64,
     .kv_heads = 1,
     .head_dim = 256,
     .ffn = 73728, /* 48 heads, padded */
     .vocab = 256000,
     .max_context = 2048,
     .gated_ffn = true,
     .tied_embeddings = true},
    {.name = "PaLM 540B",
     .layers = 118,
     .hidden = 18432,
     .heads = 64,
     .kv_heads = 1,
     .head_dim = 256,
     .ffn = 73728,
     .vocab = 256000,
     .max_context = 2048,
     .gated_ffn = true,
     .tied_embeddings = true},
    {.name = "Fuji-7B v1 (Llama-7B shape)", DENSE(32, 4096, 32, 32, 128, 11008, 32768)},
    {.name = "Fuji-7B v1", DENSE(32, 4096, 32, 32, 128, 11008, 32768)},
    {.name = "Fuji-7B v2 (Llama-2-7B shape)", DENSE(32, 4096, 32, 32, 128, 11008, 32768)},
    {.name = "Fuji-70B v2 (Llama-2-70B shape)", DENSE(80, 8192, 64, 8, 128, 28672, 32768)},
    {.name = "Honeycrisp-3B", DENSE(26, 3072, 24, 8, 128, 8064, 49152)},
    {.name = "Gala-85M", DENSE(12, 768, 12, 12, 64, 2048, 32768)},
    {.name = "Llama4-Maverick-17B-128E",
     DENSE(48, 5120, 40, 8, 128, 16384, 202048),
     EXPERTS(128, 1, 8192),
     .shared_experts = 1,
     .shared_expert_ffn = 8192,
     .dense_layers = 24}, /* every second layer is dense */
    /* Gemma 4: the full-attention layers have fewer, wider heads than the sliding ones described
     * here; the dense FFN beside the experts counts as a shared expert. */
    {.name = "gemma4-26b",
     DENSE(30, 2816, 16, 8, 256, 2112, 262144),
     EXPERTS(128, 8, 704),
     .shared_experts = 1,
     .shared_expert_ffn = 2112,
     .tied_embeddings = true,
     .qk_norm = true,
     .sliding_window = 1024,
     .sliding_every = 6},
    {.name = "gemma4-31b",
     DENSE(60, 5376, 32, 16, 256, 21504, 262144),
     .tied_embeddings = true,
     .qk_norm = true,
     .sliding_window = 1024,
     .sliding_every = 6},
    {.name = "gemma4-4b",
     DENSE(42, 2560, 8, 2, 256, 10240, 262144),
     .tied_embeddings = true,
     .qk_norm = true,
     .sliding_window = 512,
     .sliding_every = 6},
    {.name = "GLM-5.1",
     DENSE(78, 6144, 64, 64, 256, 12288, 154880),
     EXPERTS(256, 8, 2048),
     .shared_experts = 1,
     .shared_expert_ffn = 2048,
     .dense_layers = 3,
     .q_lora_rank = 2048,
     .kv_lora_rank = 512,
     .qk_nope_head_dim = 192,
     .qk_rope_head_dim = 64,
     .v_head_dim = 256},
};

/* Other names of the shapes above. */
static const char *const same[][2] = {
    {"gemma-4-26B-A4B", "gemma4-26b"}, {"Gemma4-26B-A4B", "gemma4-26b"},
    {"gemma-4-31B-it", "gemma4-31b"},  {"Gemma4-31B", "gemma4-31b"},
    {"Gemma4-E4B", "gemma4-4b"},
};

/* MaxText's base model (2048 wide, 16 heads of 128, FFN 7168 gated, 16 layers) scaled: doublings go
 * round heads and FFN, width, layers. */
static bool maxtext_scaled(const char *name, struct model *m) {
    double b = validate_find_number(name, "maxtext-");
    if (strncmp(name, "maxtext-", 8) != 0 || b < 1 || b > 4096)
        return false;
    int log2 = 0;
    while ((int64_t)1 << (log2 + 1) <= (int64_t)b)
        log2++;
    int base = log2 / 3, rem = log2 % 3;
    int heads = base + (rem > 0), width = base + (rem > 1);
    *m = (struct model){.layers = INT64_C(16) << base,
                        .hidden = INT64_C(2048) << width,
                        .heads = INT64_C(16) << heads,
                        .kv_heads = INT64_C(16) << heads,
                        .head_dim = 128,
                        .ffn = INT64_C(7168) << heads,
                        .vocab = 32000,
                        .max_context = 2048,
                        .gated_ffn = true};
    snprintf(m->name, sizeof m->name, "%s", name);
    return true;
}

bool validate_model(const char *name, struct model *m) {
    struct err ignored = {0};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        if (strcmp(name, same[i][0]) == 0)
            name = same[i][1];
    for (size_t i = 0; i < sizeof shipped / sizeof shipped[0]; i++)
        if (strcmp(name, shipped[i][0]) == 0)
            return model_load(shipped[i][1], m, &ignored) == 0;
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i].name) == 0) {
            *m = others[i];
            return true;
        }
    return maxtext_scaled(name, m);
}
