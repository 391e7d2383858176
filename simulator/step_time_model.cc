#include "simulator/step_time_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "base/status.h"
#include "simulator/trace_fields.h"

namespace quire::simulator {
namespace {

constexpr int kTerms = 4;
using Vector = std::array<double, kTerms>;
using Matrix = std::array<Vector, kTerms>;

Vector TermsOf(const StepWork& work) {
  return {1.0, static_cast<double>(work.prefill_tokens), static_cast<double>(work.decode_sequences),
          static_cast<double>(work.context_tokens)};
}

// The normal equations, with every term scaled to a root mean square of 1.
struct NormalEquations {
  Matrix products{};  // X^T X
  Vector targets{};   // X^T y
  double square = 0;  // y^T y
  Vector scale{};
};

NormalEquations MakeEquations(std::span<const MeasuredStep> steps) {
  NormalEquations equations;
  for (const MeasuredStep& step : steps) {
    const Vector terms = TermsOf(step.work);
    for (std::size_t i = 0; i < kTerms; ++i) equations.scale[i] += terms[i] * terms[i];
  }
  for (double& scale : equations.scale) {
    scale = std::sqrt(scale / static_cast<double>(steps.size()));
  }
  for (const MeasuredStep& step : steps) {
    Vector terms = TermsOf(step.work);
    for (std::size_t i = 0; i < kTerms; ++i) {
      if (equations.scale[i] > 0) terms[i] /= equations.scale[i];
    }
    for (std::size_t i = 0; i < kTerms; ++i) {
      for (std::size_t j = 0; j < kTerms; ++j) equations.products[i][j] += terms[i] * terms[j];
      equations.targets[i] += terms[i] * step.seconds;
    }
    equations.square += step.seconds * step.seconds;
  }
  return equations;
}

// Solves for the terms in `subset` (a bit each), the others being 0. Nothing if they depend on
// each other.
std::optional<Vector> Solve(const NormalEquations& equations, unsigned subset) {
  Matrix a = equations.products;
  Vector b = equations.targets;
  const double smallest_pivot = 1e-9 * a[0][0];
  for (std::size_t i = 0; i < kTerms; ++i) {
    if ((subset >> i & 1) != 0) continue;
    for (std::size_t j = 0; j < kTerms; ++j) a[i][j] = a[j][i] = 0;
    a[i][i] = equations.products[0][0];
    b[i] = 0;
  }
  for (std::size_t i = 0; i < kTerms; ++i) {
    std::size_t pivot = i;
    for (std::size_t r = i + 1; r < kTerms; ++r) {
      if (std::abs(a[r][i]) > std::abs(a[pivot][i])) pivot = r;
    }
    if (!(std::abs(a[pivot][i]) > smallest_pivot)) return std::nullopt;
    std::swap(a[i], a[pivot]);
    std::swap(b[i], b[pivot]);
    for (std::size_t r = 0; r < kTerms; ++r) {
      if (r == i) continue;
      const double factor = a[r][i] / a[i][i];
      for (std::size_t j = i; j < kTerms; ++j) a[r][j] -= factor * a[i][j];
      b[r] -= factor * b[i];
    }
  }
  Vector solution;
  for (std::size_t i = 0; i < kTerms; ++i) solution[i] = b[i] / a[i][i];
  return solution;
}

// |X x - y|^2 from the normal equations.
double SquaredError(const NormalEquations& equations, const Vector& x) {
  double error = equations.square;
  for (std::size_t i = 0; i < kTerms; ++i) {
    error -= 2 * x[i] * equations.targets[i];
    for (std::size_t j = 0; j < kTerms; ++j) error += x[i] * equations.products[i][j] * x[j];
  }
  return error;
}

}  // namespace

absl::Status StepTimeModel::Validate() const {
  for (const double coefficient :
       {fixed_s, per_prefill_token_s, per_decode_sequence_s, per_context_token_s}) {
    if (!(coefficient >= 0 && coefficient <= 1e6)) {
      return InvalidArgument("times of a step must be in [0, 1e6] seconds, got {}", coefficient);
    }
  }
  if (fixed_s < 1e-9 && (per_prefill_token_s < 1e-9 || per_decode_sequence_s < 1e-9) &&
      per_context_token_s < 1e-9) {
    return InvalidArgument(
        "every step must take at least 1 ns: a fixed time, one for each token of context, or both "
        "for prefill tokens and for sequences that decode");
  }
  return absl::OkStatus();
}

StepTimeModel StepTimeModel::Opt13bOnA100() {
  constexpr double kParameters = 12.85e9, kBytesPerSecond = 1.2e12, kFlops = 0.5 * 312e12;
  constexpr double kKvBytesPerToken = 819'200;
  return {.fixed_s = 2 * kParameters / kBytesPerSecond,
          .per_prefill_token_s = 2 * kParameters / kFlops,
          .per_decode_sequence_s = 50e-6,
          .per_context_token_s = kKvBytesPerToken / kBytesPerSecond};
}

absl::StatusOr<StepTimeModel> StepTimeModel::Fit(std::span<const MeasuredStep> steps) {
  if (steps.size() < kTerms) {
    return FailedPrecondition("a fit needs at least {} measured steps, got {}", kTerms,
                              steps.size());
  }
  const NormalEquations equations = MakeEquations(steps);
  std::optional<Vector> best;
  double smallest_error = 0;
  for (unsigned subset = 1; subset < 1U << kTerms; ++subset) {
    const std::optional<Vector> solution = Solve(equations, subset);
    if (!solution || std::ranges::any_of(*solution, [](double x) { return x < 0; })) continue;
    const double error = SquaredError(equations, *solution);
    if (best && error >= smallest_error) continue;
    best = solution;
    smallest_error = error;
  }
  if (!best) return FailedPrecondition("the measured steps do not determine a step-time model");
  for (std::size_t i = 0; i < kTerms; ++i) {
    if (equations.scale[i] > 0) (*best)[i] /= equations.scale[i];
  }
  const StepTimeModel model{(*best)[0], (*best)[1], (*best)[2], (*best)[3]};
  if (const absl::Status valid = model.Validate(); !valid.ok()) {
    return FailedPrecondition(
        "the best fit is {} s a step, {} s a prefill token, {} s a sequence that decodes and "
        "{} s a token of context, but {}",
        model.fixed_s, model.per_prefill_token_s, model.per_decode_sequence_s,
        model.per_context_token_s, AsStd(valid.message()));
  }
  return model;
}

absl::StatusOr<std::vector<MeasuredStep>> ParseMeasuredSteps(std::string_view jsonl) {
  constexpr std::int64_t kMost = std::int64_t{1} << 40;
  std::vector<MeasuredStep> steps;
  const LineHandler read = [&](FieldReader& fields) -> absl::Status {
    MeasuredStep step;
    QUIRE_RETURN_IF_ERROR(fields.Int("prefill_tokens", 0, kMost, &step.work.prefill_tokens));
    QUIRE_RETURN_IF_ERROR(fields.Int("decode_sequences", 0, kMost, &step.work.decode_sequences));
    QUIRE_RETURN_IF_ERROR(fields.Int("context_tokens", 0, kMost, &step.work.context_tokens));
    QUIRE_RETURN_IF_ERROR(fields.Number("seconds", 0, 1e6, &step.seconds));
    steps.push_back(step);
    return fields.NoOthers();
  };
  QUIRE_RETURN_IF_ERROR(ForEachJsonLine(jsonl, read));
  return steps;
}

}  // namespace quire::simulator
