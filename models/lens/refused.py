"""Members of TransformerLens' models that ours do not have, and what to use instead."""

_TEXT = "it reads the instances of a task, not text; use task.render and batch.targets"
_ANSWER = "answers are read off at once, no token follows from another; use model(inputs)"
_INPUTS = "queries, keys and values of all heads have one input; use hook_q, hook_k or hook_v"
_WEIGHTS = ("weights stay as they were trained; use tokens_to_residual_directions, which folds in "
            "the weight of ln_final")
_POSITIONS = "no position is added to the residual stream; use blocks[l].attn.rel_pos_bias"
_DATA = "problems come from the task; use task.sample"

REFUSED: dict[str, str] = {
    **dict.fromkeys(("tokenizer", "set_tokenizer", "to_string", "to_str_tokens", "to_single_token",
                     "to_single_str_token", "get_token_position"), _TEXT),
    **dict.fromkeys(("generate", "generate_stream", "hf_generate"), _ANSWER),
    "loss_fn": "the loss belongs to the task; use task.loss",
    **dict.fromkeys(("set_use_split_qkv_input", "set_use_attn_in", "set_use_hook_mlp_in"), _INPUTS),
    "set_use_attn_result": "results are computed from hook_z; use cache.stack_head_results",
    **dict.fromkeys(("enable_compatibility_mode", "process_weights", "process_weights_",
                     "fold_layer_norm", "fold_value_biases", "center_writing_weights",
                     "center_unembed", "refactor_factored_attn_matrices",
                     "load_and_process_state_dict"), _WEIGHTS),
    **dict.fromkeys(("W_pos", "W_E_pos", "pos_embed", "hook_pos_embed"), _POSITIONS),
    **dict.fromkeys(("load_sample_training_dataset", "sample_datapoint"), _DATA),
    "input_to_embed": "embedding is one step; use run_with_cache, and cache['embed']",
}
"""Name of a member and why it is missing, each a text without a full stop."""
