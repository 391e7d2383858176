#include "engine/mailbox.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace quire::engine {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

Mail AbortWith(std::string message) { return AbortAllMail{absl::AbortedError(message)}; }

TEST(Mailbox, GivesMailInTheOrderItCame) {
  Mailbox mailbox;
  EXPECT_TRUE(mailbox.Send(AbortWith("one")));
  EXPECT_TRUE(mailbox.Send(AbortWith("two")));
  std::vector<Mail> mail;
  EXPECT_TRUE(mailbox.Wait(absl::InfiniteDuration(), mail));
  ASSERT_THAT(mail, SizeIs(2));
  EXPECT_EQ(std::get<AbortAllMail>(mail[0]).status.message(), "one");
  EXPECT_EQ(std::get<AbortAllMail>(mail[1]).status.message(), "two");
  EXPECT_TRUE(mailbox.Wait(absl::ZeroDuration(), mail));
  EXPECT_THAT(mail, IsEmpty()) << "mail is read once, and old contents of `out` are gone";
}

TEST(Mailbox, WakesTheSleeper) {
  Mailbox mailbox;
  std::vector<Mail> mail;
  std::thread sender([&mailbox] { mailbox.Send(AbortWith("wake")); });
  EXPECT_TRUE(mailbox.Wait(absl::InfiniteDuration(), mail));
  EXPECT_THAT(mail, SizeIs(1));
  sender.join();
}

TEST(Mailbox, APokeWakesOnceWithoutMail) {
  Mailbox mailbox;
  mailbox.Poke();
  mailbox.Poke();
  std::vector<Mail> mail;
  EXPECT_TRUE(mailbox.Wait(absl::InfiniteDuration(), mail));
  EXPECT_THAT(mail, IsEmpty());
  EXPECT_TRUE(mailbox.Send(AbortWith("next")));
  EXPECT_TRUE(mailbox.Wait(absl::InfiniteDuration(), mail));
  EXPECT_THAT(mail, SizeIs(1)) << "the second poke merged into the first";
}

TEST(Mailbox, TakesNothingOnceClosedButGivesWhatItHas) {
  Mailbox mailbox;
  EXPECT_TRUE(mailbox.Send(AbortWith("before")));
  mailbox.Close();
  EXPECT_FALSE(mailbox.Send(AbortWith("after")));
  std::vector<Mail> mail;
  EXPECT_FALSE(mailbox.Wait(absl::InfiniteDuration(), mail));
  ASSERT_THAT(mail, SizeIs(1));
  EXPECT_EQ(std::get<AbortAllMail>(mail[0]).status.message(), "before");
}

}  // namespace
}  // namespace quire::engine
