// What the Llama family calls its weights here, whatever the file calls them. "embed",
// "final_norm", "head"; per layer "layers.3.q_proj" and so on.
#pragma once

#include <fmt/format.h>

#include <string>
#include <string_view>

namespace quire::engine::model {

inline constexpr std::string_view kEmbed = "embed";           // [vocab, hidden]
inline constexpr std::string_view kFinalNorm = "final_norm";  // [hidden]
inline constexpr std::string_view kHead = "head";             // [vocab, hidden]; absent when tied

// Parts of a layer.
inline constexpr std::string_view kAttentionNorm = "attention_norm";  // [hidden]
inline constexpr std::string_view kQProj = "q_proj";                  // [heads * head_dim, hidden]
inline constexpr std::string_view kKProj = "k_proj";        // [kv_heads * head_dim, hidden]
inline constexpr std::string_view kVProj = "v_proj";        // [kv_heads * head_dim, hidden]
inline constexpr std::string_view kOProj = "o_proj";        // [hidden, heads * head_dim]
inline constexpr std::string_view kFfnNorm = "ffn_norm";    // [hidden]
inline constexpr std::string_view kGateProj = "gate_proj";  // [intermediate, hidden]
inline constexpr std::string_view kUpProj = "up_proj";      // [intermediate, hidden]
inline constexpr std::string_view kDownProj = "down_proj";  // [hidden, intermediate]

inline std::string LayerWeight(int layer, std::string_view part) {
  return fmt::format("layers.{}.{}", layer, part);
}

}  // namespace quire::engine::model
