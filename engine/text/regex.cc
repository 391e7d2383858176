#include "engine/text/regex.h"

#include <memory>
#include <utility>

#include "base/check.h"
#include "base/status.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

namespace quire::engine::text {
namespace {

// Far above what a sane pattern needs on one match, far below a noticeable delay.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::uint32_t kHeapLimitKiB = 16 * 1024;
constexpr std::size_t kJitStackMin = 32 * 1024, kJitStackMax = 1024 * 1024;

std::string ErrorText(int code) {
  PCRE2_UCHAR buffer[256] = {};
  pcre2_get_error_message(code, buffer, sizeof buffer);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct RegexScratch::Impl {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(kJitStackMin, kJitStackMax, nullptr);
};

RegexScratch::RegexScratch() : impl_(std::make_unique<Impl>()) {
  QUIRE_CHECK(impl_->data != nullptr && impl_->context != nullptr) << "out of memory";
  pcre2_set_match_limit(impl_->context, kMatchLimit);
  pcre2_set_heap_limit(impl_->context, kHeapLimitKiB);
  if (impl_->stack != nullptr) pcre2_jit_stack_assign(impl_->context, nullptr, impl_->stack);
}

RegexScratch::~RegexScratch() {
  pcre2_match_data_free(impl_->data);
  pcre2_match_context_free(impl_->context);
  pcre2_jit_stack_free(impl_->stack);
}

struct Regex::Code {
  ~Code() { pcre2_code_free(code); }
  std::string pattern;
  pcre2_code* code = nullptr;
};

Regex::Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}

absl::StatusOr<Regex> Regex::Compile(std::string_view pattern) {
  QUIRE_ASSIGN_OR_RETURN(const std::string translated, ToPcre2(pattern));
  auto code = std::make_shared<Code>();
  code->pattern = pattern;
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  code->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                             PCRE2_UTF | PCRE2_UCP, &error, &error_offset, nullptr);
  if (code->code == nullptr) {
    return InvalidArgument("regular expression \"{}\": {}", pattern, ErrorText(error));
  }
  std::uint32_t matches_empty = 0;
  pcre2_pattern_info(code->code, PCRE2_INFO_MATCHEMPTY, &matches_empty);
  if (matches_empty != 0) {
    return Unimplemented(
        "regular expression \"{}\" can match the empty string, which is not "
        "supported",
        pattern);
  }
  // Without JIT (not available on this processor) the interpreter gives the same matches.
  pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

absl::Status Regex::FindAll(std::string_view text, RegexScratch& scratch,
                            std::vector<std::string_view>& matches) const {
  matches.clear();
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const PCRE2_SIZE* found = pcre2_get_ovector_pointer(scratch.impl_->data);
  std::size_t at = 0;
  while (at < text.size()) {
    const int result = pcre2_match(code_->code, subject, text.size(), at, PCRE2_NO_UTF_CHECK,
                                   scratch.impl_->data, scratch.impl_->context);
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0) {
      return ResourceExhausted("regular expression \"{}\" on {} bytes of text: {}", code_->pattern,
                               text.size(), ErrorText(result));
    }
    matches.push_back(text.substr(found[0], found[1] - found[0]));
    at = found[1];
  }
  return absl::OkStatus();
}

}  // namespace quire::engine::text
