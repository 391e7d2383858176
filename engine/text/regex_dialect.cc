#include <utility>

#include "base/status.h"
#include "engine/text/regex.h"

namespace quire::engine::text {
namespace {

constexpr std::string_view kWordClass = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < in_.size()) {
      const char c = in_[at_];
      if (c == '\\') {
        QUIRE_RETURN_IF_ERROR(Escape());
      } else if (in_class_) {
        QUIRE_RETURN_IF_ERROR(InClass(c));
      } else {
        QUIRE_RETURN_IF_ERROR(OutsideClass(c));
      }
    }
    return std::move(out_);
  }

 private:
  absl::Status Refuse(std::string_view what) const {
    return Unimplemented("regular expression \"{}\": {} at byte {} is not supported", in_, what,
                         at_);
  }

  void Copy(std::size_t length) {
    out_.append(in_.substr(at_, length));
    at_ += length;
  }

  absl::Status Escape() {
    if (at_ + 1 == in_.size()) return Refuse("a trailing backslash");
    const char c = in_[at_ + 1];
    switch (c) {
      case 's':
        return Replace(R"(\p{White_Space})");
      case 'S':
        return Replace(R"(\P{White_Space})");
      case 'd':
        return Replace(R"(\p{Nd})");
      case 'D':
        return Replace(R"(\P{Nd})");
      case 'w':
        return Replace(in_class_ ? std::string(kWordClass) : fmt::format("[{}]", kWordClass));
      case 'W':
        if (in_class_) return Refuse("\\W in a class");
        return Replace(fmt::format("[^{}]", kWordClass));
      case 'p':
      case 'P':
      case 'x':
        return Braced();
      case 'r':
      case 'n':
      case 't':
      case 'f':
        break;
      default:
        if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
            static_cast<unsigned char>(c) >= 0x80) {
          return Refuse(fmt::format("\\{}", c));
        }
    }
    Copy(2);
    return absl::OkStatus();
  }

  // \p{…}, \P{…}, \x{…}
  absl::Status Braced() {
    const std::string_view rest = in_.substr(at_);
    const std::size_t end = rest.find('}');
    if (rest.substr(2, 1) != "{" || end == std::string_view::npos) {
      return Refuse(fmt::format("{} without braces", rest.substr(0, 2)));
    }
    Copy(end + 1);
    return absl::OkStatus();
  }

  absl::Status Replace(std::string_view by) {
    out_.append(by);
    at_ += 2;
    return absl::OkStatus();
  }

  absl::Status InClass(char c) {
    if (c == '[') return Refuse("a class in a class");
    if (c == '&' && in_.substr(at_).starts_with("&&")) return Refuse("&& in a class");
    if (c == ']') in_class_ = false;
    Copy(1);
    return absl::OkStatus();
  }

  absl::Status OutsideClass(char c) {
    const std::string_view rest = in_.substr(at_);
    if (c == '^' || c == '$') return Refuse(std::string_view(&c, 1));
    if (c == '[') {
      in_class_ = true;
      // A "]" right after the opening is a member of the class in one dialect only.
      const std::size_t opening = rest.starts_with("[^") ? 2 : 1;
      if (rest.substr(opening).starts_with("]")) return Refuse("an empty class");
      Copy(opening);
      return absl::OkStatus();
    }
    if (rest.starts_with("(?")) return Group(rest);
    for (const std::string_view other : {"(*", "{,", "}+"}) {
      if (rest.starts_with(other)) return Refuse(other);
    }
    Copy(1);
    return absl::OkStatus();
  }

  // Groups that mean the same in both dialects.
  absl::Status Group(std::string_view rest) {
    for (const std::string_view opening :
         {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?-i:"}) {
      if (!rest.starts_with(opening)) continue;
      Copy(opening.size());
      return absl::OkStatus();
    }
    return Refuse(rest.substr(0, 4));
  }

  std::string_view in_;
  std::size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> ToPcre2(std::string_view pattern) { return Translator(pattern).Run(); }

std::string QuoteRegex(std::string_view text) {
  std::string quoted;
  for (const char c : text) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
    if (!is_plain) quoted += '\\';
    quoted += c;
  }
  return quoted;
}

}  // namespace quire::engine::text
