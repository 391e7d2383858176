#include "tests/engine/model/plain_llama.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "engine/model/weight_names.h"

namespace quire::fakes {
namespace {

namespace names = engine::model;
using Row = std::vector<double>;

Row Multiply(const ToyTensor& w, const Row& x) {
  Row y(static_cast<std::size_t>(w.shape[0]), 0.0);
  for (std::size_t r = 0; r < y.size(); ++r) {
    for (std::size_t c = 0; c < x.size(); ++c) y[r] += w.values[r * x.size() + c] * x[c];
  }
  return y;
}

Row Normalise(const Row& x, const ToyTensor& gain) {
  double squares = 0;
  for (const double value : x) squares += value * value;
  const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * gain.values[i];
  return y;
}

// Rotates each head's pairs (i, i + half) by position * base^(-2i / head_dim).
void Rotate(Row& x, std::size_t head_dim, double base, std::size_t position) {
  const std::size_t half = head_dim / 2;
  for (std::size_t head = 0; head < x.size(); head += head_dim) {
    for (std::size_t i = 0; i < half; ++i) {
      const double angle =
          static_cast<double>(position) *
          std::pow(base, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const double a = x[head + i], b = x[head + i + half];
      x[head + i] = a * std::cos(angle) - b * std::sin(angle);
      x[head + i + half] = b * std::cos(angle) + a * std::sin(angle);
    }
  }
}

// Attention of the newest query over all keys so far, or the last of them if there is a window.
Row Attend(const Row& q, const std::vector<Row>& keys, const std::vector<Row>& values,
           const ToyOptions& options) {
  const auto head_dim = static_cast<std::size_t>(options.head_dim);
  const auto heads_per_kv = static_cast<std::size_t>(options.num_heads / options.num_kv_heads);
  Row out(q.size(), 0.0);
  for (std::size_t head = 0; head < static_cast<std::size_t>(options.num_heads); ++head) {
    const std::size_t from = head / heads_per_kv * head_dim, to = head * head_dim;
    Row weights;
    for (std::size_t t = 0; t < keys.size(); ++t) {
      const auto age = static_cast<int>(keys.size() - t) - 1;
      if (options.sliding_window > 0 && age >= options.sliding_window) {
        weights.push_back(0);
        continue;
      }
      double score = 0;
      for (std::size_t d = 0; d < head_dim; ++d) score += q[to + d] * keys[t][from + d];
      weights.push_back(std::exp(score / std::sqrt(static_cast<double>(head_dim))));
    }
    double sum = 0;
    for (const double weight : weights) sum += weight;
    for (std::size_t t = 0; t < keys.size(); ++t) {
      for (std::size_t d = 0; d < head_dim; ++d) {
        out[to + d] += weights[t] / sum * values[t][from + d];
      }
    }
  }
  return out;
}

void Add(const Row& y, Row& x) {
  for (std::size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

}  // namespace

std::vector<std::vector<double>> PlainLlamaLogits(ToyModel& toy, const std::vector<TokenId>& ids) {
  const ToyOptions& options = toy.options();
  const auto head_dim = static_cast<std::size_t>(options.head_dim);
  const auto hidden = static_cast<std::size_t>(options.hidden_size);
  const ToyTensor& embed = toy.tensor(names::kEmbed);
  const ToyTensor& head = options.tie_embeddings ? embed : toy.tensor(names::kHead);
  const auto num_layers = static_cast<std::size_t>(options.num_layers);
  std::vector<std::vector<Row>> keys(num_layers), values(num_layers);
  std::vector<Row> logits;
  for (std::size_t position = 0; position < ids.size(); ++position) {
    const float* row = embed.values.data() + static_cast<std::size_t>(ids[position]) * hidden;
    Row x(row, row + hidden);
    for (std::size_t l = 0; l < num_layers; ++l) {
      const auto weight = [&](std::string_view part) -> const ToyTensor& {
        return toy.tensor(names::LayerWeight(static_cast<int>(l), part));
      };
      Row h = Normalise(x, weight(names::kAttentionNorm));
      Row q = Multiply(weight(names::kQProj), h), k = Multiply(weight(names::kKProj), h);
      Rotate(q, head_dim, options.rope_base, position);
      Rotate(k, head_dim, options.rope_base, position);
      keys[l].push_back(k);
      values[l].push_back(Multiply(weight(names::kVProj), h));
      Add(Multiply(weight(names::kOProj), Attend(q, keys[l], values[l], options)), x);
      h = Normalise(x, weight(names::kFfnNorm));
      Row gate = Multiply(weight(names::kGateProj), h);
      const Row up = Multiply(weight(names::kUpProj), h);
      for (std::size_t i = 0; i < gate.size(); ++i) gate[i] *= up[i] / (1 + std::exp(-gate[i]));
      Add(Multiply(weight(names::kDownProj), gate), x);
    }
    logits.push_back(Multiply(head, Normalise(x, toy.tensor(names::kFinalNorm))));
  }
  return logits;
}

}  // namespace quire::fakes
