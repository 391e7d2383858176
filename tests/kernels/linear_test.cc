// Dense products, packing and embedding of every backend and instruction set level.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <random>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/backend.h"
#include "kernels/cpu/linear_input.h"
#include "kernels/math.h"
#include "tests/kernels/backends.h"
#include "tests/kernels/matrix_sources.h"

namespace quire::kernels {
namespace {

using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A weight format as a test sees it; int8 comes with and without offsets, which are packed
// differently.
enum class Form { kF32, kBf16, kInt8, kInt8Offsets, kInt4 };
constexpr Form kForms[] = {Form::kF32, Form::kBf16, Form::kInt8, Form::kInt8Offsets, Form::kInt4};

std::string FormName(Form form) {
  constexpr const char* kNames[] = {"f32", "bf16", "int8", "int8_offsets", "int4"};
  return kNames[static_cast<int>(form)];
}

WeightFormat FormatOf(Form form) {
  switch (form) {
    case Form::kF32:
      return WeightFormat::kF32;
    case Form::kBf16:
      return WeightFormat::kBf16;
    case Form::kInt4:
      return WeightFormat::kInt4Group32;
    default:
      return WeightFormat::kInt8Group32;
  }
}

bool HasGroups(Form form) { return form != Form::kF32 && form != Form::kBf16; }

std::unique_ptr<MatrixSource> RandomMatrix(Form form, std::int64_t rows, std::int64_t cols,
                                           unsigned seed) {
  if (!HasGroups(form)) {
    return std::make_unique<FloatMatrix>(FloatMatrix::Random(rows, cols, seed));
  }
  const auto encoding = form == Form::kInt4 ? MatrixSource::Encoding::kInt4Group32
                                            : MatrixSource::Encoding::kInt8Group32;
  return std::make_unique<GroupMatrix>(
      GroupMatrix::Random(rows, cols, encoding, form != Form::kInt8, seed));
}

// The weights that a format multiplies with.
std::vector<float> ExactWeights(const MatrixSource& source, Form form) {
  std::vector<float> weights = Dequantised(source);
  if (form == Form::kBf16) {
    for (float& w : weights) w = Bf16ToF32(F32ToBf16(w));
  }
  return weights;
}

std::unique_ptr<LinearWeights> Pack(Backend& backend, const MatrixSource& source, Form form) {
  const MatrixSource* const sources[] = {&source};
  auto packed = backend.PackLinear(sources, FormatOf(form));
  EXPECT_TRUE(packed.ok()) << packed.status();
  return *std::move(packed);
}

// Inputs with rows that differ; what lies between them is NaN.
std::unique_ptr<LinearInput> RandomInput(Backend& backend, std::int32_t rows, std::int32_t features,
                                         unsigned seed) {
  const FloatMatrix values = FloatMatrix::Random(rows, features, seed);
  std::vector<float> x = Dequantised(values);
  std::vector<float> gain(static_cast<std::size_t>(features), 1.0F);
  auto input = backend.NewLinearInput(rows, features);
  if (auto* fast = dynamic_cast<cpu::CpuLinearInput*>(input.get())) {
    std::fill_n(fast->row(0), rows * fast->stride(), kNan);
  }
  backend.Norm({x.data(), rows, features, features}, gain, 1e-5F, *input);
  return input;
}

// A result of [rows, cols] with some floats between and behind its rows that must survive.
struct Result {
  static constexpr float kGuard = 12345.0F;

  Result(std::int32_t num_rows, std::int32_t num_cols)
      : rows(num_rows),
        cols(num_cols),
        stride(num_cols + 5),
        values(static_cast<std::size_t>((num_rows + 1) * (num_cols + 5)), kGuard) {}
  MatrixView view() { return {values.data(), rows, cols, stride}; }
  const float* row(std::int32_t r) const { return values.data() + r * stride; }
  bool SameRow(std::int32_t r, const float* other) const {
    return std::memcmp(row(r), other, static_cast<std::size_t>(cols) * sizeof(float)) == 0;
  }
  void ExpectGuards() const {
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int64_t c = cols; c < stride; ++c) ASSERT_EQ(row(r)[c], kGuard) << r << " " << c;
    }
    for (std::int64_t c = 0; c < stride; ++c) ASSERT_EQ(row(rows)[c], kGuard) << c;
  }

  std::int32_t rows;
  std::int32_t cols;
  std::int64_t stride;
  std::vector<float> values;
};

Result Product(Backend& backend, const LinearWeights& weights, const LinearInput& input,
               std::int32_t rows) {
  Result result(rows, weights.out_features());
  backend.Linear(weights, input, Epilogue::kStore, result.view());
  result.ExpectGuards();
  return result;
}

using Param = std::tuple<BackendCase, Form>;

class LinearTest : public ::testing::TestWithParam<Param> {
 protected:
  std::unique_ptr<Backend> backend_ = std::get<0>(GetParam()).Make();
  Form form_ = std::get<1>(GetParam());
};

INSTANTIATE_TEST_SUITE_P(AllBackends, LinearTest,
                         ::testing::Combine(::testing::ValuesIn(AllBackends()),
                                            ::testing::ValuesIn(kForms)),
                         [](const auto& param) {
                           return std::get<0>(param.param).name() + "_" +
                                  FormName(std::get<1>(param.param));
                         });

struct Shape {
  std::int32_t outputs;
  std::int32_t inputs;
};

// Sizes around the tiles: column groups of 32, blocks of 32 and 128 inputs, 640 f32 inputs.
std::vector<Shape> Shapes(Form form) {
  if (HasGroups(form)) return {{1, 32}, {31, 64}, {32, 96}, {65, 160}, {100, 1536}, {161, 288}};
  return {{1, 1}, {31, 7}, {32, 33}, {65, 129}, {100, 1343}, {161, 288}, {64, 640}};
}

TEST_P(LinearTest, AgreesWithDoublePrecision) {
  for (const Shape& shape : Shapes(form_)) {
    const auto source = RandomMatrix(form_, shape.outputs, shape.inputs, 1);
    const std::vector<float> w = ExactWeights(*source, form_);
    const auto packed = Pack(*backend_, *source, form_);
    for (const std::int32_t rows : {1, 2, 3, 7, 8, 9, 15, 29, 113, 300}) {
      const auto input = RandomInput(*backend_, rows, shape.inputs, 2);
      const Result result = Product(*backend_, *packed, *input, rows);
      double error = 0;
      double size = 0;
      for (std::int32_t r = 0; r < rows; ++r) {
        const std::vector<float> x = InputRow(*input, r);
        for (std::int32_t c = 0; c < shape.outputs; ++c) {
          const ExactDot exact(x, std::span(w).subspan(static_cast<std::size_t>(c * shape.inputs),
                                                       static_cast<std::size_t>(shape.inputs)));
          const double difference = result.row(r)[c] - exact.sum;
          error += difference * difference;
          size += exact.sum * exact.sum;
          // A sum of n terms wanders by about sqrt(n) roundings of its size.
          ASSERT_LE(std::abs(difference),
                    8 * 0x1p-24 * std::sqrt(shape.inputs * exact.sum_of_squares) + 1e-30)
              << shape.outputs << "x" << shape.inputs << " rows " << rows << " at " << r << ","
              << c;
        }
      }
      EXPECT_LE(std::sqrt(error / size), 1e-6) << shape.outputs << "x" << shape.inputs;
    }
  }
}

// C117: the number of rows, and with it tiles and kernels, must not change a bit of any row.
TEST_P(LinearTest, C117_RowsDoNotDependOnTheirNumber) {
  constexpr std::int32_t kRows = 300;
  const Shape shape = {70, 160};
  const auto source = RandomMatrix(form_, shape.outputs, shape.inputs, 3);
  const auto packed = Pack(*backend_, *source, form_);
  const auto input = RandomInput(*backend_, kRows, shape.inputs, 4);
  const Result all = Product(*backend_, *packed, *input, kRows);
  for (std::int32_t rows = 1; rows < kRows; rows += rows < 64 ? 1 : 5) {
    const Result some = Product(*backend_, *packed, *input, rows);
    for (std::int32_t r = 0; r < rows; ++r) {
      ASSERT_TRUE(some.SameRow(r, all.row(r))) << "row " << r << " of " << rows;
    }
  }
}

TEST_P(LinearTest, C117_RowsDoNotDependOnTheirPlace) {
  constexpr std::int32_t kRows = 131;
  const Shape shape = {65, 1376};
  const auto source = RandomMatrix(form_, shape.outputs, shape.inputs, 5);
  const auto packed = Pack(*backend_, *source, form_);
  std::vector<float> gain(static_cast<std::size_t>(shape.inputs), 1.0F);
  const FloatMatrix values = FloatMatrix::Random(kRows, shape.inputs, 6);
  std::vector<float> x = Dequantised(values);
  std::vector<float> reversed(x.size());
  for (std::int32_t r = 0; r < kRows; ++r) {
    std::copy_n(x.begin() + r * shape.inputs, shape.inputs,
                reversed.begin() + (kRows - 1 - r) * shape.inputs);
  }
  const auto input = backend_->NewLinearInput(kRows, shape.inputs);
  backend_->Norm({x.data(), kRows, shape.inputs, shape.inputs}, gain, 1e-5F, *input);
  const Result forward = Product(*backend_, *packed, *input, kRows);
  backend_->Norm({reversed.data(), kRows, shape.inputs, shape.inputs}, gain, 1e-5F, *input);
  const Result backward = Product(*backend_, *packed, *input, kRows);
  for (std::int32_t r = 0; r < kRows; ++r) {
    ASSERT_TRUE(forward.SameRow(r, backward.row(kRows - 1 - r))) << r;
  }
}

// Formats differ in how they are kept, not in what they compute.
TEST_P(LinearTest, GivesTheSameBitsAsF32OfTheSameWeights) {
  for (const Shape& shape : {Shape{161, 288}, Shape{64, 1536}}) {
    const auto source = RandomMatrix(form_, shape.outputs, shape.inputs, 7);
    const auto packed = Pack(*backend_, *source, form_);
    const FloatMatrix exact(shape.outputs, shape.inputs, ExactWeights(*source, form_));
    const auto packed_exact = Pack(*backend_, exact, Form::kF32);
    for (const std::int32_t rows : {1, 2, 5, 8, 9, 31, 120}) {
      const auto input = RandomInput(*backend_, rows, shape.inputs, 8);
      const Result result = Product(*backend_, *packed, *input, rows);
      const Result expected = Product(*backend_, *packed_exact, *input, rows);
      for (std::int32_t r = 0; r < rows; ++r) {
        ASSERT_TRUE(result.SameRow(r, expected.row(r))) << "row " << r << " of " << rows;
      }
    }
  }
}

TEST_P(LinearTest, AddsToWhatIsThere) {
  const Shape shape = {77, 192};
  const auto source = RandomMatrix(form_, shape.outputs, shape.inputs, 9);
  const auto packed = Pack(*backend_, *source, form_);
  for (const std::int32_t rows : {1, 3, 40}) {
    const auto input = RandomInput(*backend_, rows, shape.inputs, 10);
    const Result product = Product(*backend_, *packed, *input, rows);
    Result sum(rows, shape.outputs);
    const auto before = [](std::int32_t r, std::int32_t c) {
      return static_cast<float>(r) * 0.37F - static_cast<float>(c) * 1.91F;
    };
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int32_t c = 0; c < shape.outputs; ++c) sum.view().row(r)[c] = before(r, c);
    }
    backend_->Linear(*packed, *input, Epilogue::kAdd, sum.view());
    sum.ExpectGuards();
    for (std::int32_t r = 0; r < rows; ++r) {
      for (std::int32_t c = 0; c < shape.outputs; ++c) {
        const float expected = before(r, c) + product.row(r)[c];
        ASSERT_NEAR(sum.row(r)[c], expected,
                    0x1p-22F * std::abs(product.row(r)[c]) + 0x1p-23F * std::abs(expected))
            << r << "," << c;
      }
    }
  }
}

TEST_P(LinearTest, PacksSeveralMatricesSideBySide) {
  constexpr std::int32_t kInputs = 96;
  constexpr std::int32_t kRows = 11;
  std::vector<std::unique_ptr<MatrixSource>> sources;
  std::vector<const MatrixSource*> pointers;
  for (const std::int32_t outputs : {33, 7, 64}) {
    sources.push_back(RandomMatrix(form_, outputs, kInputs, static_cast<unsigned>(outputs)));
    pointers.push_back(sources.back().get());
  }
  const auto together = backend_->PackLinear(pointers, FormatOf(form_));
  ASSERT_TRUE(together.ok()) << together.status();
  EXPECT_EQ((*together)->out_features(), 104);
  EXPECT_EQ((*together)->in_features(), kInputs);
  EXPECT_EQ((*together)->format(), FormatOf(form_));
  const auto input = RandomInput(*backend_, kRows, kInputs, 11);
  const Result all = Product(*backend_, **together, *input, kRows);
  std::int32_t column = 0;
  for (const auto& source : sources) {
    const auto alone = Pack(*backend_, *source, form_);
    const Result part = Product(*backend_, *alone, *input, kRows);
    for (std::int32_t r = 0; r < kRows; ++r) {
      ASSERT_TRUE(part.SameRow(r, all.row(r) + column)) << r;
    }
    column += part.cols;
  }
}

TEST_P(LinearTest, EmbedsTheExactWeights) {
  const Shape shape = {77, 160};
  const auto source = RandomMatrix(form_, shape.outputs, shape.inputs, 12);
  const std::vector<float> w = ExactWeights(*source, form_);
  const auto packed = Pack(*backend_, *source, form_);
  // Enough of them to occupy all workers.
  std::vector<TokenId> ids(500);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<TokenId>(i * 31 % 77);
  Result result(static_cast<std::int32_t>(ids.size()), shape.inputs);
  backend_->Embed(*packed, ids, result.view());
  result.ExpectGuards();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ASSERT_TRUE(result.SameRow(static_cast<std::int32_t>(i), w.data() + ids[i] * shape.inputs))
        << i;
  }
}

TEST(LinearThreads, OneAndTwoGiveTheSameBits) {
  for (const BackendCase& one : AllBackends()) {
    if (one.isa.empty() || one.threads != 1) continue;
    const auto alone = one.Make();
    const auto both = BackendCase{.isa = one.isa, .threads = 2}.Make();
    const auto source = RandomMatrix(Form::kInt4, 1000, 576, 13);
    const auto packed_alone = Pack(*alone, *source, Form::kInt4);
    const auto packed_both = Pack(*both, *source, Form::kInt4);
    for (const std::int32_t rows : {1, 16, 250}) {
      const auto input_alone = RandomInput(*alone, rows, 576, 14);
      const auto input_both = RandomInput(*both, rows, 576, 14);
      const Result expected = Product(*alone, *packed_alone, *input_alone, rows);
      const Result result = Product(*both, *packed_both, *input_both, rows);
      for (std::int32_t r = 0; r < rows; ++r) {
        ASSERT_TRUE(result.SameRow(r, expected.row(r))) << one << " row " << r << " of " << rows;
      }
    }
  }
}

class PackTest : public ::testing::TestWithParam<BackendCase> {
 protected:
  absl::Status PackStatus(std::vector<const MatrixSource*> sources, WeightFormat format) {
    return backend_->PackLinear(sources, format).status();
  }
  static GroupMatrix Int4() {
    return GroupMatrix::Random(40, 64, MatrixSource::Encoding::kInt4Group32, true, 15);
  }

  std::unique_ptr<Backend> backend_ = GetParam().Make();
};

std::vector<BackendCase> CpuBackends() {
  std::vector<BackendCase> cases = AllBackends();
  std::erase_if(cases, [](const BackendCase& c) { return c.isa.empty(); });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(CpuBackends, PackTest, ::testing::ValuesIn(CpuBackends()),
                         [](const auto& param) { return param.param.name(); });

void ExpectInvalid(const absl::Status& status, const std::string& text) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(text));
}

TEST_P(PackTest, RefusesSourcesThatDoNotFitTogether) {
  const FloatMatrix a = FloatMatrix::Random(3, 64, 1);
  const FloatMatrix b = FloatMatrix::Random(3, 65, 1);
  const FloatMatrix empty(0, 64, {});
  ExpectInvalid(PackStatus({}, WeightFormat::kF32), "no matrix");
  ExpectInvalid(PackStatus({&a, &b}, WeightFormat::kF32),
                "matrix 1 has 65 columns, matrix 0 has 64");
  ExpectInvalid(PackStatus({&a, &empty}, WeightFormat::kF32), "matrix 1 is 0 x 64");
}

TEST_P(PackTest, RefusesTheWrongEncoding) {
  const FloatMatrix floats = FloatMatrix::Random(3, 64, 1);
  const GroupMatrix int4 = Int4();
  ExpectInvalid(PackStatus({&floats}, WeightFormat::kInt4Group32),
                "matrix 0 is not encoded as int4_g32");
  ExpectInvalid(PackStatus({&int4, &floats}, WeightFormat::kInt4Group32),
                "matrix 1 is not encoded as int4_g32");
  ExpectInvalid(PackStatus({&int4}, WeightFormat::kInt8Group32),
                "matrix 0 is not encoded as int8_g32");
}

TEST_P(PackTest, RefusesGroupsThatAreNotWhole) {
  const GroupMatrix ragged =
      GroupMatrix::Random(32, 33, MatrixSource::Encoding::kInt4Group32, true, 1);
  ExpectInvalid(PackStatus({&ragged}, WeightFormat::kInt4Group32),
                "multiple of 32 columns, got 33");
}

TEST_P(PackTest, RefusesScalesThatItCannotKeepExactly) {
  for (const float bad : {kNan, std::numeric_limits<float>::infinity(), 1e6F, 1.0F + 0x1p-20F}) {
    GroupMatrix scale = Int4();
    scale.scales[37 * 2 + 1] = bad;
    ExpectInvalid(PackStatus({&scale}, WeightFormat::kInt4Group32), "row 37: scale");
    GroupMatrix offset = Int4();
    offset.offsets[37 * 2 + 1] = bad;
    ExpectInvalid(PackStatus({&offset}, WeightFormat::kInt4Group32), "row 37: offset");
  }
}

TEST_P(PackTest, RefusesCodesBeyondFourBits) {
  for (const std::int8_t bad : {std::int8_t{16}, std::int8_t{-1}, std::int8_t{127}}) {
    GroupMatrix matrix = Int4();
    matrix.codes[5 * 64 + 63] = bad;
    matrix.codes[39 * 64] = bad;
    ExpectInvalid(PackStatus({&matrix}, WeightFormat::kInt4Group32), "row 5: a code");
  }
}

TEST_P(PackTest, FloatFormatsTakeAnyEncoding) {
  const GroupMatrix int4 = Int4();
  EXPECT_TRUE(PackStatus({&int4}, WeightFormat::kF32).ok());
  EXPECT_TRUE(PackStatus({&int4}, WeightFormat::kBf16).ok());
}

TEST_P(PackTest, SaysHowMuchItKeeps) {
  const MatrixSource::Encoding int8 = MatrixSource::Encoding::kInt8Group32;
  const GroupMatrix plain = GroupMatrix::Random(64, 64, int8, false, 1);
  const GroupMatrix offsets = GroupMatrix::Random(64, 64, int8, true, 1);
  const GroupMatrix int4 = Int4();
  const FloatMatrix floats = FloatMatrix::Random(64, 64, 1);
  const auto bytes = [&](const MatrixSource& source, WeightFormat format) {
    const MatrixSource* const sources[] = {&source};
    return (*backend_->PackLinear(sources, format))->bytes() - 64;  // Slack at the end.
  };
  EXPECT_EQ(bytes(floats, WeightFormat::kF32), 64 * 64 * 4);
  EXPECT_EQ(bytes(floats, WeightFormat::kBf16), 64 * 64 * 2);
  EXPECT_EQ(bytes(plain, WeightFormat::kInt8Group32), 64 * 64 + 64 * 2 * 2);
  EXPECT_EQ(bytes(offsets, WeightFormat::kInt8Group32), 64 * 64 + 64 * 2 * 4);
  EXPECT_EQ(bytes(int4, WeightFormat::kInt4Group32), 64 * 64 / 2 + 64 * 2 * 4);
}

}  // namespace
}  // namespace quire::kernels
